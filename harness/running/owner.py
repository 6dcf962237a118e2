"""The owner's side of a run: images, releases, and what is learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from harness.api import (
    PluginError,
    Progress,
    Recipe,
    Release,
    ReleaseKind,
    Samples,
    Splits,
    UsageError,
)
from harness.asking.selector import Resolved
from harness.rng import KeyedStream
from harness.running.codec import pack_release, pack_splits, unpack_release, unpack_splits
from harness.running.context import Context, plugin_boundary
from harness.running.embed import embed
from harness.running.heldout import held_out
from harness.running.inference import outputs
from harness.running.load import SplitSizes, load
from harness.running.release import ReleaseProtocol, release, standardised
from harness.running.stack import Stack
from harness.running.train import MEASURE, SECONDS, EpochClock, state, train
from harness.running.utility import utility
from harness.sandbox.rebuilding import cut_at
from harness.scoring.utility import LARGEST, Right, Utility, separability, summed_up
from harness.store import Artifact
from harness.store.features import FeatureStore

SPLITS = ("private", "public", "test")
GRADIENT_TARGETS = 16
"""Images judged of gradients, where the user names no number: each costs a model's size."""
SHORTEST_SECONDS = 0.5
"""Trainings below this are over before the machine has settled; their ratio would be noise."""
UNPROTECTED: tuple[Resolved, ...] = ()


def _recipe(victim: Resolved) -> Recipe:
    if not isinstance(victim.config, Recipe):
        raise PluginError(f"the config of victim '{victim.name}' does not extend Recipe")
    return victim.config


def _right(training: Artifact) -> Right:
    return Right.model_validate(training.facts["right"])


def _measured(facts: Mapping[str, float | int | str]) -> dict[str, float]:
    """What training defenses measured while a release was made."""
    named = {k.removeprefix(MEASURE): v for k, v in facts.items() if k.startswith(MEASURE)}
    return {name: float(value) for name, value in named.items()}


class Owner:
    """Who holds the private images."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.cell = context.cell
        self._releases: dict[str, Release] = {}

    @cached_property
    def splits(self) -> Splits:
        """Private, public and test samples in the space: images, or their features."""
        if not self.cell.space.spec.extracts:
            return self.images
        if not self.images.scale.of_images:
            raise UsageError(
                f"'{self.cell.space.name}' extracts features of images, and "
                f"'{self.cell.dataset.name}' has vectors; leave --space at pixels."
            )
        space = self.context.build("spaces", self.cell.space)
        with plugin_boundary(self.cell.space.name):
            return embed(self.images, lambda images: self._features(space, images))

    def _features(self, space: Any, images: Tensor) -> Tensor:
        """Features of images, those that were met before from disk."""
        context = self.context

        def extract(batch: Tensor) -> Tensor:
            unit = Samples(batch, batch.new_empty(0)).unit().images.to(context.device)
            found: Tensor = space.embed(unit, context.assets)
            return found

        features = FeatureStore(context.store, context.keys.features, tuple(images.shape[1:]))
        with context.watched("features") as progress:
            return features.obtain(images, extract, progress)

    @cached_property
    def images(self) -> Splits:
        """Private, public and test images as the dataset has them."""
        key = self.context.keys.load
        return unpack_splits(
            self.context.obtain("load", key, "load", self._load, lambda: self.context.assets)
        )

    def _load(self, progress: Progress) -> Artifact:
        collection = self._collection(self.cell.dataset)
        public = self._collection(self.cell.public) if self.cell.public else None
        stream = self.context.board.stream(stage="load")
        return pack_splits(load(collection, public, self._sizes(), stream))

    def _sizes(self) -> SplitSizes:
        """Sizes that come from a preset are at most so large; those asked for are exact."""
        request = self.cell.request
        unasked = (name for name in SPLITS if getattr(request, f"{name}_size") is None)
        return SplitSizes(**request.sizes.model_dump(), at_most=frozenset(unasked))

    def _collection(self, resolved: Resolved) -> Any:
        dataset = self.context.build("datasets", resolved)
        with plugin_boundary(resolved.name):
            return dataset.load(self.context.assets)

    @cached_property
    def truth(self) -> Splits:
        """The splits as the judge has them: `private` are the images that attacks are judged on.

        Where those are held out, `test` has none of them.
        """
        if not self.cell.held_out:
            return self.splits
        return held_out(self.splits, self.cell.request.targets)

    @property
    def targets(self) -> int:
        """How many images are judged: of gradients, no more than batches hold."""
        if self.cell.held_out:
            return len(self.truth.private)
        if self.cell.kind is ReleaseKind.GRADIENTS:
            return min(self._wanted, self._batches * self.cell.request.batch_size)
        return self._wanted

    @property
    def _wanted(self) -> int:
        private = len(self.splits.private)
        gradients = self.cell.kind is ReleaseKind.GRADIENTS
        default = GRADIENT_TARGETS if gradients else private
        return min(self.cell.request.targets or default, private)

    @property
    def _batches(self) -> int:
        """Full batches only: enough for the targets, or all that the private images fill."""
        size = self.cell.request.batch_size
        return max(1, min(-(-self._wanted // size), len(self.splits.private) // size))

    def stack(self, defenses: tuple[Resolved, ...]) -> Stack:
        """The defenses, built."""
        built = [(d.spec.stage, d.name, self.context.build("defenses", d)) for d in defenses]
        named = {
            stage: tuple((n, d) for s, n, d in built if s == stage)
            for stage in ("encoding", "training", "gradient")
        }
        encoding = named["encoding"][0] if named["encoding"] else None
        return Stack(encoding, named["training"], named["gradient"])

    def victim_of(self, defenses: tuple[Resolved, ...]) -> Resolved:
        """The victim with its recipe as a stack wants it."""
        stack = self.stack(defenses)
        with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
            return replace(self.cell.victim, config=stack.adapt(_recipe(self.cell.victim)))

    @property
    def changed_recipe(self) -> dict[str, Any]:
        """What the stack changed of the victim's recipe."""
        asked = self.cell.victim.config.model_dump(mode="json")
        adapted = self.victim_of(self.cell.defenses).config.model_dump(mode="json")
        return {name: value for name, value in adapted.items() if value != asked[name]}

    def _label(self, verb: str, defenses: tuple[Resolved, ...]) -> str:
        return verb if defenses == self.cell.defenses else f"{verb} unprotected"

    @property
    def release(self) -> Release:
        """What leaves in this cell."""
        return self.release_of(self.cell.defenses, self.cell.kind)

    def release_of(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Release:
        """What leaves under a stack."""
        key = self.context.keys.release_of(defenses, kind)
        if key not in self._releases:
            artifact = self.context.obtain(
                "release",
                key,
                self._label("release", defenses),
                lambda progress: self._release(defenses, kind, progress),
                lambda: self.splits,
            )
            self._releases[key] = unpack_release(artifact)
        return self._releases[key]

    def _release(
        self, defenses: tuple[Resolved, ...], kind: ReleaseKind, progress: Progress
    ) -> Artifact:
        request = self.cell.request
        protocol = ReleaseProtocol(
            rounds=request.rounds,
            batch_size=request.batch_size,
            batches=self._batches,
            victim_epochs=request.victim_epochs,
            bn_mode=request.bn_mode,
        )
        with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
            made = release(
                self.splits,
                self.stack(defenses),
                kind,
                self.context.build("victims", self.victim_of(defenses)),
                protocol,
                owner=self.context.owner_stream,
                board=self.context.board.stream(stage="release"),
                device=self.context.device,
                progress=progress,
                held_out=self.truth.private if self.cell.held_out else None,
            )
        return pack_release(made)

    def utility(self) -> Utility:
        """The victim's accuracy beside that of the same victim on unprotected images."""
        own = self.trained()
        reference = self.unprotected()
        return summed_up(*([_right(t) for t in part] for part in (own, reference)))

    def trained(self) -> list[Artifact]:
        """The victim's trainings under the stack; CellFailed where it cannot be trained so."""
        return self._trainings(self.cell.defenses, self.cell.trained_kind)

    def unprotected(self) -> list[Artifact]:
        """The trainings that accuracies are held against."""
        return self._trainings(UNPROTECTED, ReleaseKind.ENCODINGS)

    @property
    def measures(self) -> dict[str, float]:
        """What was measured of the victim's first training, and of a young one's gradients."""
        first = self._training(self.cell.defenses, self.cell.trained_kind, 0)
        found: dict[str, float] = first.facts["measures"]
        if self.cell.kind is not ReleaseKind.GRADIENTS:
            return found
        young = _measured(self.release.facts)
        return found | {f"release.{name}": value for name, value in young.items()}

    def training_seconds(self) -> dict[str, float]:
        """How long the trainings took under the stack and unprotected, and the ratio.

        Nothing is said of what is too short to be measured.
        """
        own, plain = (
            sum(made.facts[SECONDS] for made in self._trainings(defenses, kind))
            for defenses, kind in (
                (self.cell.defenses, self.cell.trained_kind),
                (UNPROTECTED, ReleaseKind.ENCODINGS),
            )
        )
        if min(own, plain) < SHORTEST_SECONDS:
            return {}
        return {
            "training": round(own, 3),
            "training unprotected": round(plain, 3),
            "training ratio": round(own / plain, 3),
        }

    def _trainings(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> list[Artifact]:
        return [self._training(defenses, kind, i) for i in range(self.cell.request.repeats)]

    def _training(self, defenses: tuple[Resolved, ...], kind: ReleaseKind, repeat: int) -> Artifact:
        """One of the trainings; the first under a training defense may be the release's own.

        Further ones start anew, from other weights and in another order, on what the owner
        trained on.
        """
        if repeat:
            kind = ReleaseKind.ENCODINGS
        label = self._label("train", defenses) + (f" {repeat + 1}" if repeat else "")
        return self.context.obtain(
            "train",
            self.context.keys.train_of(defenses, kind, repeat),
            label,
            lambda progress: self._train(defenses, kind, repeat, progress),
            lambda: self.release_of(defenses, kind),
        )

    def _train(
        self,
        defenses: tuple[Resolved, ...],
        kind: ReleaseKind,
        repeat: int,
        progress: Progress,
    ) -> Artifact:
        stack, victim = self.stack(defenses), self.victim_of(defenses)
        made = self.release_of(defenses, kind)
        with plugin_boundary(self.cell.victim.name):
            clock = EpochClock(progress)
            model = train(
                made,
                self.context.build("victims", victim),
                len(self.splits.classes),
                self._training_stream(stack, repeat),
                self.context.device,
                stack=stack,
                progress=clock,
            )
            seconds = float(made.facts.get(SECONDS, clock.seconds))
            right = utility(model, self.splits, stack, self._asking(repeat), self.context.device)
            measures = {
                **(_measured(made.facts) or stack.measures()),
                **self._separability(model, victim),
            }
        facts = {"right": right.model_dump(), "measures": measures, SECONDS: seconds}
        return Artifact(state(model), facts)

    def _asking(self, repeat: int) -> KeyedStream:
        axes = {"repeat": repeat} if repeat else {}
        return self.context.owner_stream.stream(stage="utility", **axes)

    def _separability(self, model: nn.Sequential, victim: Resolved) -> dict[str, float]:
        """How far apart the private images lie where the victim is cut, if it has a cut."""
        cut = _recipe(victim).cut
        if not cut:
            return {}
        private = standardised(self.splits.private[:LARGEST], self.splits.scale)
        h, _ = cut_at(model, cut)
        return separability(outputs(h, private.images, self.context.device), private.labels)

    def _training_stream(self, stack: Stack, repeat: int) -> KeyedStream:
        """Public, but secret where a defense draws its own noise from it."""
        secret = bool(stack.training or stack.gradient)
        axes = {"repeat": repeat} if repeat else {}
        context = self.context
        return (context.owner_stream if secret else context.board).stream(stage="train", **axes)

    def batches(self) -> Tensor | None:
        """[batches, b]: the primary private images of each released gradient."""
        if self.cell.kind is not ReleaseKind.GRADIENTS:
            return None
        return self.release.secrets["sources"][..., 0]

    def primary_sources(self) -> Tensor | None:
        """[rounds·n]: the primary private image of each encoding."""
        sources = self.release.secrets.get("sources")
        return None if sources is None else sources[..., 0].flatten()

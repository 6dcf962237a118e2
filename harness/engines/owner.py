"""The owner's side of a run: images, releases, and what is learned from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor

from harness.api import Progress, Release, ReleaseKind, Splits
from harness.engines.codec import pack_release, pack_splits, unpack_release, unpack_splits
from harness.engines.context import Context, plugin_boundary
from harness.rng import KeyedStream
from harness.selector import Resolved
from harness.stages.load import SplitSizes, load
from harness.stages.release import ReleaseProtocol, release
from harness.stages.stack import Stack
from harness.stages.train import state, train
from harness.stages.utility import Utility, utility
from harness.store import Artifact

SPLITS = ("private", "public", "test")
GRADIENT_TARGETS = 16
"""Images judged of gradients, where the user names no number: each costs a model's size."""
UNPROTECTED: tuple[Resolved, ...] = ()


class Owner:
    """Who holds the private images."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.cell = context.cell
        self._releases: dict[str, Release] = {}

    @cached_property
    def splits(self) -> Splits:
        """Private, public and test images."""
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

    @property
    def targets(self) -> int:
        """How many private images are judged: of gradients, no more than batches hold."""
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

    @cached_property
    def _embed(self) -> Callable[[Tensor], Tensor]:
        space = self.context.build("spaces", self.cell.space)
        return lambda images: space.embed(images, self.splits.scale, self.context.assets)

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
            embed=self._embed,
        )
        with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
            made = release(
                self.splits,
                self.stack(defenses),
                kind,
                self.context.build("victims", self.cell.victim),
                protocol,
                owner=self.context.owner_stream,
                board=self.context.board.stream(stage="release"),
                device=self.context.device,
                progress=progress,
            )
        return pack_release(made)

    def utility(self) -> Utility:
        """The victim's accuracy beside that of the same victim on unprotected images."""
        plain = self._trained(UNPROTECTED, ReleaseKind.ENCODINGS)
        own = self._trained(self.cell.defenses, self.cell.trained_kind)
        return own.beside(plain)

    def _trained(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Utility:
        artifact = self.context.obtain(
            "train",
            self.context.keys.train_of(defenses, kind),
            self._label("train", defenses),
            lambda progress: self._train(defenses, kind, progress),
            lambda: self.release_of(defenses, kind),
        )
        return Utility.model_validate(artifact.facts["utility"])

    def _train(
        self, defenses: tuple[Resolved, ...], kind: ReleaseKind, progress: Progress
    ) -> Artifact:
        stack = self.stack(defenses)
        with plugin_boundary(self.cell.victim.name):
            model = train(
                self.release_of(defenses, kind),
                self.context.build("victims", self.cell.victim),
                len(self.splits.classes),
                self._training_stream(stack),
                self.context.device,
                stack=stack,
                progress=progress,
            )
            measured = utility(
                model,
                self.splits,
                stack,
                self.context.owner_stream.stream(stage="utility"),
                self.context.device,
                embed=self._embed,
            )
        return Artifact(state(model), {"utility": measured.model_dump(mode="json")})

    def _training_stream(self, stack: Stack) -> KeyedStream:
        """Public, but secret where a defense draws its own noise from it."""
        secret = bool(stack.training or stack.gradient)
        return (self.context.owner_stream if secret else self.context.board).stream(stage="train")

    def primary_sources(self) -> Tensor | None:
        """[rounds·n]: the primary private image of each encoding."""
        sources = self.release.secrets.get("sources")
        return None if sources is None else sources[..., 0].flatten()

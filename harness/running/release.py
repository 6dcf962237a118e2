"""Release: what leaves the owner, and what the owner keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from harness.api.data import Samples, Splits
from harness.api.errors import CellFailed, PluginError
from harness.api.knowledge import OF_BATCHES, ReleaseKind
from harness.api.plugins import (
    EncodingDefense,
    GradientDefense,
    Progress,
    Recipe,
    StatisticsDefense,
    TrainingDefense,
    Victim,
    silent,
)
from harness.api.precision import Precision
from harness.api.release import GUARANTEE, Measured, Release
from harness.rng import public_stream
from harness.running.rounds import Rounds, owner_stream
from harness.running.samples import Space, Truth, on_demand, space_identity, standardised
from harness.running.stage import Output, Stage, hardware, plugin_boundary
from harness.store.artifacts import Artifact, below
from harness.store.provenance import plugin_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from harness.api.randomness import Stream
    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.running.encoding import Source
    from harness.running.run import Run

OWNER_MODEL = "owner_model."
"""Prefix, among a release's secrets, of the model that the owner trained inside."""
MEASURE = "measure."
"""Prefix, among a release's facts, of what its training defenses measured."""
SECONDS = "training_seconds"
"""The fact of a release, or of a training, that says how long the victim was trained."""
INPUT_SHAPE = "input_shape"
"""The fact of a release that says what its victim takes, as in `1x28x28`."""


@dataclass(frozen=True, eq=False)
class ReleaseStage(Stage[Release]):
    """What leaves under a stack of defenses, as one kind of release."""

    name = "release"
    defenses: tuple[Resolved, ...]
    kind: ReleaseKind
    draw: int = 0
    """As of `Rounds`."""

    @classmethod
    def alone(cls, cell: Cell) -> Self:
        """What leaves in a cell."""
        return cls(cell, cell.defenses, cell.kind)

    @property
    def label(self) -> str:
        """The unprotected reference has a label of its own, and so has every draw."""
        unprotected = "" if self.defenses == self.cell.defenses else " unprotected"
        again = f" {self.draw + 1}" if self.draw else ""
        return f"{self.name}{unprotected}{again}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The rounds; of gradients, updates and held-out images also which of them are judged."""
        held_out = self.kind is ReleaseKind.FEATURES and self.cell.held_out
        chosen = held_out or self.kind in OF_BATCHES
        made = (Space.of(self.cell), self._rounds)
        return (*made, Truth.of(self.cell)) if chosen else made

    @property
    def _rounds(self) -> Rounds:
        return Rounds.under(self.cell, self.defenses, self.draw)

    def facts(self) -> dict[str, Any]:
        """Defenses, rounds and seeds; the victim and the machine where it is trained inside."""
        cell, request = self.cell, self.cell.request
        trained = self.kind is ReleaseKind.FEATURES or self.kind in OF_BATCHES
        late = [request.batch_size, request.victim_epochs, request.bn_mode]
        local = {"local": cell.local} if self.kind is ReleaseKind.UPDATES else {}
        return {
            "defenses": [plugin_identity(d) for d in self.defenses],
            "kind": self.kind,
            "space": space_identity(cell),
            "victim": plugin_identity(cell.victim) if trained else None,
            "protocol": late if self.kind in OF_BATCHES else None,
            **local,
            "draw": self.draw,
            "seed": request.seed,
            "owner": cell.owner,
            "hardware": hardware(cell, cell.victim_precision(self.defenses)) if trained else None,
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Encode, or train inside."""
        request = self.cell.request
        source = run(self._rounds)
        judged = run.truth if Truth.of(self.cell) in self.inputs else None
        protocol = ReleaseProtocol(
            batch_size=request.batch_size,
            batches=judged.batches if judged else 1,
            victim_epochs=request.victim_epochs,
            bn_mode=request.bn_mode,
            local_steps=request.local_steps,
            local_lr=request.local_lr,
            local_images=request.local_images,
        )
        victim = victim_under(run, self.defenses)
        held_out = judged.splits.private if judged and self.cell.held_out else None
        with plugin_boundary("+".join(d.name for d in self.defenses) or "no defense"):
            made = release(
                run.splits,
                source,
                build_stack(run, self.defenses),
                self.kind,
                run.build("victims", victim.spec, victim.config),
                protocol,
                owner=owner_stream(run, self.draw),
                board=public_stream(request.seed).stream(stage="release"),
                device=run.device,
                precision=self.cell.victim_precision(self.defenses),
                progress=progress,
                held_out=held_out,
            )
        out = {f"out.{name}": tensor for name, tensor in made.tensors.items()}
        kept = {f"kept.{name}": tensor for name, tensor in made.secrets.items()}
        resolved = {name: dict(values) for name, values in made.resolved.items()}
        facts = {"kind": made.kind, "resolved": resolved, "facts": dict(made.facts)}
        return Artifact({**out, **kept}, facts)

    @staticmethod
    def read(stored: Artifact) -> Release:
        """What left, and what was kept."""
        tensors, facts = stored.tensors, stored.facts
        kind, resolved = ReleaseKind(facts["kind"]), facts["resolved"]
        parts = below("out.", tensors), below("kept.", tensors)
        return Release(kind, *parts, resolved=resolved, facts=facts["facts"])


@dataclass(frozen=True)
class ReleaseProtocol:
    """How much is released, and at what moment of the owner's training.

    Gradients: `batches` of `batch_size` from each round, of the model as it was after
    `victim_epochs` of its training (0: at initialisation), BatchNorm in the mode `bn_mode`.
    Updates: of `batches` parties, which from there take `local_steps` steps of SGD at the rate
    `local_lr`, each on `batch_size` of their `local_images` images (None: they have one batch).
    """

    batch_size: int = 1
    batches: int = 8
    victim_epochs: int = 1
    bn_mode: Literal["train", "eval"] = "train"
    local_steps: int = 1
    local_lr: float = 0.01
    local_images: int | None = None

    @property
    def together(self) -> int:
        """Images that one gradient or update is of."""
        return self.local_images or self.batch_size


def release(
    splits: Splits,
    source: Source,
    stack: Stack,
    kind: ReleaseKind,
    victim: Victim[Any],
    protocol: ReleaseProtocol,
    *,
    owner: Stream,
    board: Stream,
    device: torch.device,
    precision: Precision = "float32",
    progress: Progress = silent,
    held_out: Samples | None = None,
) -> Release:
    """One release of `kind`. Encoding runs on the CPU, training on `device`.

    For features the owner trains its model inside, in full; it stays among the secrets as
    `owner_model.*`, from which `train` brings it back. They are features of the private images,
    or of those `held_out`, which nothing was trained on. For gradients
    and updates training stops early.
    """
    if kind is ReleaseKind.ENCODINGS:
        return encodings_of(source)
    if kind is ReleaseKind.STATISTICS:
        assert stack.statistics
        return statistics_of(splits, *stack.statistics, owner)
    from harness.running.encoding import plain_round
    from harness.running.inside import Inside, features_of, gradients_of, updates_of
    from harness.running.training import fresh

    classes = len(splits.classes)
    private = standardised(splits.private, splits.scale)
    # plain images are trained on in their own order
    rounds = source.held() if stack.encoding else plain_round(private, classes)
    shape = tuple(rounds.images.shape[2:])
    model = fresh(victim, shape, classes, board.stream(what="victim"), device=device)
    inside = Inside(model, victim.config, stack, rounds, owner, device, precision, progress)
    if kind is ReleaseKind.FEATURES:
        asked = private if held_out is None else standardised(held_out, splits.scale)
        return features_of(inside, private, asked)
    leaving = updates_of if kind is ReleaseKind.UPDATES else gradients_of
    return leaving(inside, private, protocol)


def encodings_of(source: Source) -> Release:
    """All rounds of a source, at once."""
    held = source.held()
    tensors = {"encodings": held.images, "labels": held.labels}
    return Release(ReleaseKind.ENCODINGS, tensors, held.secrets, held.resolved)


def statistics_of(
    splits: Splits, name: str, defense: StatisticsDefense[Any], owner: Stream
) -> Release:
    """Sums over the private images; which class each is of stays with the owner.

    CellFailed where what the defense gives breaks its contract.
    """
    from torch.nn.functional import one_hot

    private, classes = on_demand(splits.private, splits.scale), len(splits.classes)
    public = standardised(splits.public, splits.scale)
    made = defense.measure(private, public, classes, owner.stream(what="statistics"))
    tensors = pack_statistics(made)
    wrong = [key for key, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if wrong or made.sums.ndim != 2 or (len(made.sums), len(made.counts)) != (classes, classes):
        told = f"{' and '.join(wrong)} that are not all finite" if wrong else "other shapes"
        raise CellFailed(f"defense '{name}' returned {told}; wanted sums [{classes}, q] and counts")
    guarantee = {f"{GUARANTEE}{key}": value for key, value in made.guarantee.items()}
    labels = one_hot(private.labels, classes).float()[None]
    kept = {"batch_labels": labels}
    return Release(ReleaseKind.STATISTICS, tensors, kept, resolved={name: guarantee})


def pack_statistics(made: Measured) -> dict[str, Tensor]:
    """By `statistics.name`, as a release holds them."""
    import torch

    basis = {f"basis.{name}": tensor for name, tensor in made.basis.items()}
    told = torch.tensor([made.noise, made.count_noise], dtype=torch.float64)
    parts = {"sums": made.sums, "counts": made.counts, "noise": told, **basis}
    return {f"{ReleaseKind.STATISTICS}.{name}": part.cpu() for name, part in parts.items()}


def input_shape(release: Release) -> tuple[int, ...]:
    """The shape of one input of the victim that this release was made with."""
    if release.kind is ReleaseKind.ENCODINGS:
        return tuple(release.tensors["encodings"].shape[2:])
    return tuple(int(side) for side in str(release.facts[INPUT_SHAPE]).split("x"))


def measured(release: Release) -> dict[str, float]:
    """What training defenses measured while a release was made."""
    return {name: float(value) for name, value in below(MEASURE, release.facts).items()}


@dataclass(frozen=True)
class Stack:
    """At most one defense that encodes or sums, and any number of the others, by name."""

    encoding: tuple[str, EncodingDefense[Any]] | None = None
    training: tuple[tuple[str, TrainingDefense[Any]], ...] = ()
    gradient: tuple[tuple[str, GradientDefense[Any]], ...] = ()
    statistics: tuple[str, StatisticsDefense[Any]] | None = None

    @property
    def penalties(self) -> list[TrainingDefense[Any]]:
        """The training defenses that add to the loss."""
        plain = TrainingDefense.penalty
        return [guard for _, guard in self.training if type(guard).penalty is not plain]

    @property
    def gradient_maker(self) -> TrainingDefense[Any] | None:
        """The training defense that makes the gradients that leave, if one does."""
        return next((guard for _, guard in self.training if guard.releases_gradients), None)

    def adapt(self, recipe: Recipe) -> Recipe:
        """A victim's recipe as these defenses want it, checked like one that was asked for."""
        for _, guard in self.training:
            recipe = guard.adapt(recipe)
        for _, defense in self.gradient:
            recipe = defense.adapt(recipe)
        return type(recipe).model_validate(recipe.model_dump())

    def measures(self) -> dict[str, float]:
        """What the training defenses measured, as `defense.name`."""
        return {
            f"{name}.{key}": float(value)
            for name, guard in self.training
            for key, value in guard.measures().items()
        }


def build_stack(run: Run, defenses: tuple[Resolved, ...]) -> Stack:
    """The defenses at work."""
    built = [(d.spec.stage, d.name, run.build("defenses", d.spec, d.config)) for d in defenses]
    named = {
        stage: tuple((n, d) for s, n, d in built if s == stage)
        for stage in ("encoding", "training", "gradient", "statistics")
    }
    encoding, statistics = (next(iter(named[s]), None) for s in ("encoding", "statistics"))
    return Stack(encoding, named["training"], named["gradient"], statistics)


def victim_under(run: Run, defenses: tuple[Resolved, ...]) -> Resolved:
    """The cell's victim with its recipe as a stack wants it."""
    victim = run.cell.victim
    stack = build_stack(run, defenses)
    with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
        return replace(victim, config=stack.adapt(recipe_of(victim)))


def recipe_of(victim: Resolved) -> Recipe:
    """A victim's config; PluginError where it is no recipe."""
    if not isinstance(victim.config, Recipe):
        raise PluginError(f"the config of victim '{victim.name}' does not extend Recipe")
    return victim.config

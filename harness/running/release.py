"""Release: what leaves the owner, and what the owner keeps of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.api.data import Samples, Splits
from harness.api.knowledge import ReleaseKind
from harness.api.plugins import Progress, Victim, silent
from harness.api.release import Release
from harness.rng import public_stream, secret_stream
from harness.running.space import Space, space_identity, standardised
from harness.running.stack import Stack, build_stack, victim_under
from harness.running.stage import Output, Stage, hardware, plugin_boundary
from harness.running.truth import Truth
from harness.store.artifacts import Artifact, below
from harness.store.provenance import plugin_identity

if TYPE_CHECKING:
    import torch

    from harness.api.randomness import Stream
    from harness.asking.plan import Cell
    from harness.asking.selector import Resolved
    from harness.running.encoding import Rounds
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

    @classmethod
    def of(cls, cell: Cell) -> ReleaseStage:
        """What leaves in a cell."""
        return cls(cell, cell.defenses, cell.kind)

    @property
    def label(self) -> str:
        """The unprotected reference has a label of its own."""
        own = self.defenses == self.cell.defenses
        return self.name if own else f"{self.name} unprotected"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """All samples; of gradients and held-out images also which of them are judged."""
        held_out = self.kind is ReleaseKind.FEATURES and self.cell.held_out
        chosen = held_out or self.kind is ReleaseKind.GRADIENTS
        return (Space(self.cell), Truth(self.cell)) if chosen else (Space(self.cell),)

    def facts(self) -> dict[str, Any]:
        """Defenses, rounds and seeds; the victim and the machine where it is trained inside."""
        cell, request = self.cell, self.cell.request
        trained = self.kind is not ReleaseKind.ENCODINGS
        late = [request.batch_size, request.victim_epochs, request.bn_mode]
        return {
            "defenses": [plugin_identity(d) for d in self.defenses],
            "kind": self.kind,
            "space": space_identity(cell),
            "rounds": request.rounds,
            "victim": plugin_identity(cell.victim) if trained else None,
            "protocol": late if self.kind is ReleaseKind.GRADIENTS else None,
            "seed": request.seed,
            "owner": cell.owner,
            "hardware": hardware(cell) if trained else None,
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Encode, or train inside."""
        request = self.cell.request
        judged = run(Truth(self.cell)) if len(self.inputs) > 1 else None
        protocol = ReleaseProtocol(
            rounds=request.rounds,
            batch_size=request.batch_size,
            batches=judged.batches if judged else 1,
            victim_epochs=request.victim_epochs,
            bn_mode=request.bn_mode,
        )
        victim = victim_under(run, self.defenses)
        held_out = judged.splits.private if judged and self.cell.held_out else None
        with plugin_boundary("+".join(d.name for d in self.defenses) or "no defense"):
            made = release(
                run(Space(self.cell)),
                build_stack(run, self.defenses),
                self.kind,
                run.build("victims", victim.spec, victim.config),
                protocol,
                owner=secret_stream(request.seed, run.secret),
                board=public_stream(request.seed).stream(stage="release"),
                device=run.device,
                progress=progress,
                held_out=held_out,
            )
        return stored_release(made)

    def read(self, stored: Artifact) -> Release:
        """What left, and what was kept."""
        return read_release(stored)


def stored_release(release: Release) -> Artifact:
    """A release as it is stored, with what the owner keeps of it."""
    out = {f"out.{name}": tensor for name, tensor in release.tensors.items()}
    kept = {f"kept.{name}": tensor for name, tensor in release.secrets.items()}
    facts = {
        "kind": release.kind,
        "resolved": {name: dict(values) for name, values in release.resolved.items()},
        "facts": dict(release.facts),
    }
    return Artifact({**out, **kept}, facts)


def read_release(stored: Artifact) -> Release:
    """The inverse."""
    facts = stored.facts
    return Release(
        kind=ReleaseKind(facts["kind"]),
        tensors=below("out.", stored.tensors),
        secrets=below("kept.", stored.tensors),
        resolved=facts["resolved"],
        facts=facts["facts"],
    )


@dataclass(frozen=True)
class ReleaseProtocol:
    """How much is released, and at what moment of the owner's training.

    `rounds` T of encoding. Gradients: `batches` of `batch_size` from each round, of the model as
    it was after `victim_epochs` of its training (0: at initialisation), BatchNorm in the mode
    `bn_mode`.
    """

    rounds: int = 1
    batch_size: int = 1
    batches: int = 8
    victim_epochs: int = 1
    bn_mode: Literal["train", "eval"] = "train"


def release(
    splits: Splits,
    stack: Stack,
    kind: ReleaseKind,
    victim: Victim[Any],
    protocol: ReleaseProtocol,
    *,
    owner: Stream,
    board: Stream,
    device: torch.device,
    progress: Progress = silent,
    held_out: Samples | None = None,
) -> Release:
    """One release of `kind`. Encoding runs on the CPU, training on `device`.

    For features the owner trains its model inside, in full; it stays among the secrets as
    `owner_model.*`, from which `train` brings it back. They are features of the private images,
    or of those `held_out`, which nothing was trained on. For gradients training stops early.
    """
    from harness.running.inside import Inside, features_of, gradients_of
    from harness.running.training import fresh

    private = standardised(splits.private, splits.scale)
    rounds = _rounds(splits, private, stack, kind, protocol=protocol, owner=owner)
    if kind is ReleaseKind.ENCODINGS:
        tensors = {"encodings": rounds.images, "labels": rounds.labels}
        return Release(kind, tensors, rounds.secrets, rounds.resolved)
    classes = len(splits.classes)
    shape = tuple(rounds.images.shape[2:])
    model = fresh(victim, shape, classes, board.stream(what="victim"), device=device)
    inside = Inside(model, victim.config, stack, rounds, owner, device, progress)
    if kind is ReleaseKind.FEATURES:
        asked = private if held_out is None else standardised(held_out, splits.scale)
        return features_of(inside, private, asked)
    return gradients_of(inside, private, protocol)


def _rounds(
    splits: Splits,
    private: Samples,
    stack: Stack,
    kind: ReleaseKind,
    *,
    protocol: ReleaseProtocol,
    owner: Stream,
) -> Rounds:
    """What is released as encodings, or trained on inside: there plain images keep their order."""
    from harness.running.encoding import encode_rounds, plain_round

    classes = len(splits.classes)
    if stack.encoding is None:
        if kind is not ReleaseKind.ENCODINGS:
            return plain_round(private, classes)
        return encode_rounds(
            private, private[:0], stack, owner, classes=classes, rounds=protocol.rounds
        )
    public = standardised(splits.public, splits.scale)
    return encode_rounds(private, public, stack, owner, classes=classes, rounds=protocol.rounds)


def input_shape(release: Release) -> tuple[int, ...]:
    """The shape of one input of the victim that this release was made with."""
    if release.kind is ReleaseKind.ENCODINGS:
        return tuple(release.tensors["encodings"].shape[2:])
    return tuple(int(side) for side in str(release.facts[INPUT_SHAPE]).split("x"))


def measured(release: Release) -> dict[str, float]:
    """What training defenses measured while a release was made."""
    return {name: float(value) for name, value in below(MEASURE, release.facts).items()}

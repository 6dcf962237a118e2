"""Checks of defenses of any stage, each through the true release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from harness.api import CellFailed, HarnessError, Release, ReleaseKind, Stage
from harness.testing.refusal import refusal
from harness.testing.result import Violation
from harness.testing.watch import TORCH, different, unmoved
from harness.testing.workbench import asked, workbench

if TYPE_CHECKING:
    from harness.testing.subject import Subject

KINDS = {
    Stage.ENCODING: ReleaseKind.ENCODINGS,
    Stage.TRAINING: ReleaseKind.FEATURES,
    Stage.GRADIENT: ReleaseKind.GRADIENTS,
}
ROUNDS = 2
BATCH = 2


def cell_of(subject: Subject, case: str = "grey") -> dict[str, Any]:
    """Options of the cell that a defense is checked in."""
    stage: Stage = subject.spec.stage
    rounds = ROUNDS if stage is Stage.ENCODING else 1
    more = {"rounds": rounds, "batch_size": BATCH, "only": "utility"}
    return asked(case, defense=subject.text, **more)


def release_of(subject: Subject, case: str = "grey", secret: bytes | None = None) -> Release:
    """What leaves under the defense, made anew. CellFailed where it breaks its contract."""
    with workbench(cell_of(subject, case), secret=secret) as bench:
        return bench.release(KINDS[subject.spec.stage])


def everything(release: Release) -> dict[str, Tensor]:
    """All tensors of a release, and what the owner keeps."""
    kept = {f"secret {name}": tensor for name, tensor in release.secrets.items()}
    return {**release.tensors, **kept}


def deterministic(subject: Subject) -> str:
    """The same owner's key gives the same bytes."""
    one, other = release_of(subject), release_of(subject)
    wrong = different(everything(one), everything(other))
    if one.resolved != other.resolved:
        wrong.append("resolved parameters")
    if wrong:
        raise Violation(f"two runs under one key differ in {', '.join(wrong)}")
    return "two runs under one key give the same bytes"


def leaves_the_world_alone(subject: Subject) -> str:
    """A release leaves global state as it was; training has torch's generator for itself."""
    seeded = () if subject.spec.stage is Stage.ENCODING else (TORCH,)
    with unmoved(*seeded):
        release_of(subject)
    return "no global state was moved"


def copes_with(subject: Subject, case: str) -> str:
    """Data out of the ordinary is released, or refused in a sentence of the defense's own."""
    try:
        release = release_of(subject, case)
    except HarnessError as error:
        return refusal(error)
    shapes = {name: list(tensor.shape) for name, tensor in release.tensors.items()}
    name, shape = next(iter(shapes.items()))
    return f"{name} {shape}"


def can_be_trained_on(subject: Subject) -> str:
    """A victim is trained under the defense, and asked as the defense would have it asked."""
    with workbench(cell_of(subject)) as bench:
        try:
            found = bench.owner.utility()
        except CellFailed as error:
            raise Violation(str(error)) from error
    return f"accuracy {found.accuracy:.2f} on {found.n} images after two epochs"

"""Checks of encoding defenses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.api import Encoded, Samples
from harness.rng import Axis, KeyedStream, derive
from harness.running.release import standardised
from harness.testing.defense import cell_of, release_of
from harness.testing.result import Violation
from harness.testing.watch import forgetful, same, untouched
from harness.testing.workbench import workbench

if TYPE_CHECKING:
    from harness.testing.subject import Subject

KEY = b"a key of the conformance kit"
ANOTHER = b"another owner's key"
MASKS = "extra.masks"


class Counting(KeyedStream):
    """A stream that counts how often it, or one that came of it, was read."""

    def __init__(self, key: bytes, reads: list[int] | None = None) -> None:
        super().__init__(key)
        self.reads = reads if reads is not None else [0]

    def stream(self, **axes: Axis) -> Counting:
        """An independent stream that counts together with this one."""
        return Counting(derive(self.key, axes), self.reads)

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        self.reads[0] += 1
        return super().bytes(count)


def material(subject: Subject, case: str = "grey") -> tuple[Samples, Samples]:
    """Private and public images, standardised."""
    with workbench(cell_of(subject, case)) as bench:
        splits = bench.owner.splits
        return standardised(splits.private, splits.scale), standardised(splits.public, splits.scale)


def releases(subject: Subject) -> str:
    """Shapes, types and bounds of a round; its inputs are left as they were."""
    private, public = material(subject)
    with untouched(**{"private images": private.images, "public images": public.images}):
        subject.build().encode(private, public, KeyedStream(KEY))
    release = release_of(subject)
    _every_image_is_primary(release.secrets["sources"])
    if subject.spec.hides_signs and MASKS not in release.secrets:
        raise Violation("it declares hides_signs and keeps no `masks` among its secrets")
    return f"encodings {list(release.tensors['encodings'].shape)} float32"


def _every_image_is_primary(sources: Tensor) -> None:
    """Rows [rounds, n, k]; each private image is the first of one row in each round."""
    primary = sources[..., 0].sort(dim=1).values
    if not bool((primary == torch.arange(primary.shape[1])).all()):
        raise Violation(
            "a round does not have each private image as the first source of one encoding",
            "put the image that a row is the encoding of first in its `sources`",
        )


def keeps_secrets(subject: Subject) -> str:
    """Another key encodes otherwise, and so does another round, if anything is drawn at all."""
    private, public = material(subject)
    defense = subject.build()
    stream = Counting(KEY)
    one = defense.encode(private, public, stream)
    if not stream.reads[0]:
        return "draws nothing from its stream: every owner's encoding is the same"
    if not _differs(one, defense.encode(private, public, KeyedStream(ANOTHER))):
        raise Violation("it draws from its stream, and another key gives the same encodings")
    return f"another key encodes otherwise; {stream.reads[0]} draws in a round"


def _differs(one: Encoded, other: Encoded) -> bool:
    return not (
        same(one.images, other.images)
        and same(one.secrets.weights, other.secrets.weights)
        and same(one.secrets.sources, other.secrets.sources)
    )


def forgets(subject: Subject) -> str:
    """Rounds of one instance leave nothing behind."""
    private, public = material(subject)
    defense = subject.build()
    return forgetful(
        lambda turn: defense.encode(private, public, KeyedStream(KEY).stream(round=turn))
    )

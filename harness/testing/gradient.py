"""Checks of gradient defenses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.rng import KeyedStream
from harness.testing.defense import release_of
from harness.testing.encoding import ANOTHER, KEY, Counting
from harness.testing.result import Violation
from harness.testing.watch import different, forgetful, untouched

if TYPE_CHECKING:
    from harness.testing.subject import Subject


def material() -> dict[str, Tensor]:
    """Gradients of a small network, by parameter name."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"hidden.weight": (32, 256), "hidden.bias": (32,), "head.weight": (3, 32)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def releases(subject: Subject) -> str:
    """Every gradient comes back in its shape and type; what was given is left as it was."""
    given = material()
    with untouched(**given):
        got = subject.build().protect(given, KeyedStream(KEY))
    _require_alike(given, got)
    release = release_of(subject)
    count = sum(name.startswith("gradients.") for name in release.tensors)
    return f"gradients of {count} parameters"


def _require_alike(given: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    for name, gradient in given.items():
        found = got.get(name)
        if found is None or (found.shape, found.dtype) != (gradient.shape, gradient.dtype):
            what = "nothing" if found is None else f"{list(found.shape)} {found.dtype}"
            raise Violation(f"'{name}' {list(gradient.shape)} float32 comes back as {what}")
        if not bool(found.isfinite().all()):
            raise Violation(f"'{name}' comes back with values that are not finite")


def keeps_secrets(subject: Subject) -> str:
    """Another key protects otherwise, if anything is drawn at all."""
    stream = Counting(KEY)
    one = dict(subject.build().protect(material(), stream))
    if not stream.reads[0]:
        return "draws nothing from its stream"
    other = dict(subject.build().protect(material(), KeyedStream(ANOTHER)))
    if not different(one, other):
        raise Violation("it draws from its stream, and another key gives the same gradients")
    return f"another key protects otherwise; {stream.reads[0]} draws for one batch"


def forgets(subject: Subject) -> str:
    """Batches of one training leave nothing behind."""
    defense, given = subject.build(), material()
    return forgetful(lambda turn: defense.protect(given, KeyedStream(KEY).stream(batch=turn)))

"""What a plugin does besides what it returns: global state, its inputs, memory."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.testing.result import Unanswered, Violation

REPEATS = 8
LAST = 4
"""Only the last repeats count: caches have filled by then."""
ALLOWED = 2048
"""Bytes that each repeat may leave behind: what Python itself keeps of one."""
ENGINE = 16_384
"""Likewise where a repeat goes through the engine; the kit's images are larger."""
PATIENCE = 6.0
"""Seconds that one repeat may take, for its growth to be measured."""


def _state() -> dict[str, object]:
    return {
        "Python's random numbers": random.getstate(),
        "numpy's random numbers": repr(np.random.get_state(legacy=False)),
        "torch's random numbers": torch.get_rng_state().numpy().tobytes(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "the working directory": Path.cwd(),
    }


@contextmanager
def unmoved(*seeded: str) -> Iterator[None]:
    """Violation if what runs inside leaves global state other than it was.

    `seeded` names state that the engine hands to the plugin to use.
    """
    before = _state()
    yield
    moved = [name for name, value in _state().items() if value != before[name]]
    wrong = [name for name in moved if name not in seeded]
    if wrong:
        raise Violation(f"it moves {', '.join(wrong)}")


TORCH = "torch's random numbers"


@contextmanager
def untouched(**inputs: Tensor) -> Iterator[None]:
    """Violation if what runs inside changes these tensors in place."""
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    yield
    changed = [name for name, tensor in inputs.items() if not same(tensor, before[name])]
    if changed:
        raise Violation(
            f"it changes {', '.join(changed)} in place", "work on a copy: `images.clone()`"
        )


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bytes, NaN or not."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


def different(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Names under which two sets of tensors differ."""
    names = sorted({*one, *other})
    return [n for n in names if n not in one or n not in other or not same(one[n], other[n])]


def forgetful(work: Callable[[int], object], allowed: int = ALLOWED) -> str:
    """Violation if each call of `work` leaves something behind.

    It is called with the number of the repeat. Python's own memory and the tensors that are
    alive are counted, not what the system says, which is too coarse for small images.
    """
    started = time.perf_counter()
    work(0)
    each = time.perf_counter() - started
    if each > PATIENCE:
        raise Unanswered(f"one run takes {each:.0f} s: too long to repeat")
    held = list(_held_after(work))
    steps = [after - before for before, after in pairwise(held)][-LAST:]
    if min(steps) > allowed:
        raise Violation(f"each run leaves {min(steps) / 1024:.0f} KiB behind")
    return f"{REPEATS} runs leave nothing behind"


def _held_after(work: Callable[[int], object]) -> Iterator[int]:
    tracemalloc.start()
    try:
        for i in range(REPEATS):
            work(i + 1)
            gc.collect()
            yield tracemalloc.get_traced_memory()[0] + _bytes_of_tensors()
    finally:
        tracemalloc.stop()


def _bytes_of_tensors() -> int:
    """All storages of the tensors that are alive, each once."""
    tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor)]
    storages = [t.untyped_storage() for t in tensors if t.layout is torch.strided]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return sum(sizes.values())

"""What a plugin does besides what it returns: global state, its inputs, memory, devices.

Torch's `meta` device stands in for an accelerator: what mixes its tensors with the CPU's fails
there as it would on a GPU. It has no values, so that a plugin is followed as far as it asks for
none.
"""

from __future__ import annotations

import ast
import gc
import random
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.api import AssetUnavailable, NotApplicable, Samples, Statistics
from harness.testing.subject import Subject, Unanswered, Violation

REPEATS = 8
LAST = 4
"""Only the last repeats count: caches have filled by then."""
ALLOWED = 2048
"""Bytes that each repeat may leave behind: what Python itself keeps of one."""
ENGINE = 16_384
"""Likewise where a repeat goes through the engine; the kit's images are larger."""
PATIENCE = 6.0
"""Seconds that one repeat may take, for its growth to be measured."""
TORCH = "torch's random numbers"
META = torch.device("meta")
ACCELERATOR = re.compile(r"(cuda|mps|xpu|hip)(:\d+)?")
MISPLACED = (
    "is not on the expected device meta",
    "to be on the same device",
    "can't convert meta device type tensor to numpy",
)


def _state() -> dict[str, object]:
    return {
        "Python's random numbers": random.getstate(),
        "numpy's random numbers": repr(np.random.get_state(legacy=False)),
        TORCH: torch.get_rng_state().numpy().tobytes(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "the working directory": Path.cwd(),
    }


def unmoved(work: Callable[[], object], *seeded: str) -> str:
    """Violation if `work` leaves global state other than it was.

    `seeded` names state that the engine hands to the plugin to use.
    """
    before = _state()
    work()
    moved = [name for name, value in _state().items() if value != before[name]]
    wrong = [name for name in moved if name not in seeded]
    if wrong:
        raise Violation(f"it moves {', '.join(wrong)}")
    return "no global state was moved"


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


def disciplined(subject: Subject, work: Callable[[], object]) -> str:
    """Violation if a plugin names a device, or mixes others with META, where `work` takes it."""
    named = list(_named(subject))
    if named:
        raise Violation(f"it names a device: {'; '.join(named)}")
    try:
        work()
    except (Unanswered, AssetUnavailable, NotApplicable):
        raise
    except Exception as error:
        line = _line_of(error, subject)
        if any(part in str(error) for part in MISPLACED):
            raise Violation(f"it mixes devices ({line}): {error}") from error
        return f"names no device; mixes none as far as {line}, where it asks for values"
    return "names no device, and mixes none"


def _line_of(error: BaseException, subject: Subject) -> str:
    """The last line of the plugin's package that an error came through."""
    package = subject.spec.factory.partition(":")[0].partition(".")[0]
    trace, found = error.__traceback__, "its first line"
    while trace:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            found = f"{Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _named(subject: Subject) -> Iterator[str]:
    """Accelerators in the source of the plugin's own modules, as `file.py:12 'cuda'`."""
    module = subject.spec.factory.partition(":")[0]
    __import__(module)
    package = module.rpartition(".")[0] or module
    for name, loaded in sorted(sys.modules.items()):
        if name in (package, module) or name.startswith(f"{package}."):
            path = Path(getattr(loaded, "__file__", None) or "")
            found = _in_source(path) if path.suffix == ".py" else ()
            yield from (f"{path.name}:{line} {what}" for line, what in found)


def _in_source(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (
                (part.lineno, ast.unparse(node)) for part in (node.func, *given) if _is(part)
            )


def _is(node: ast.expr) -> bool:
    """Whether this names an accelerator: `"cuda:0"`, or a method or function of it."""
    if isinstance(node, ast.Constant):
        return bool(ACCELERATOR.fullmatch(str(node.value)))
    parts = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
    return any(ACCELERATOR.fullmatch(part) for part in parts)


def on_meta(value: Any) -> Any:
    """A channel's content, without its values."""
    if isinstance(value, Tensor | nn.Module):
        return value.to(META)
    if isinstance(value, Samples):
        return Samples(value.images.to(META), value.labels.to(META))
    if isinstance(value, Mapping):
        return {name: on_meta(part) for name, part in value.items()}
    if isinstance(value, Statistics):
        sums, counts, basis = map(on_meta, (value.sums, value.counts, value.basis))
        return replace(value, sums=sums, counts=counts, basis=basis)
    return value

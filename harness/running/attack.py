"""Attack: a view goes to a process of its own, a reconstruction comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from harness.api import Budget, CellFailed, Progress, Reconstruction
from harness.sandbox.jobs import DIAGNOSTICS, FOUND, PREPARED, unpack
from harness.sandbox.process import AttackProcess, Spent


@dataclass(frozen=True)
class Attacked:
    """What an attack brought back, and what it took."""

    reconstruction: Reconstruction
    spent: Spent


@dataclass(frozen=True)
class Learned:
    """What an attack learned before the release, and what it took."""

    tensors: Mapping[str, Tensor]
    spent: Spent


def make_shared(
    process: AttackProcess,
    view: Path,
    out: Path,
    factory: str,
    arguments: Mapping[str, Any],
    budget: Budget,
    progress: Progress,
) -> Learned:
    """Make a preparation, on a view that holds its channels and nothing of the release."""
    job = {"action": "share", "view": str(view), "out": str(out)}
    spent = process.ask({**job, "factory": factory, "arguments": arguments}, budget, progress)
    return Learned(_tensors(out / PREPARED), spent)


def learn(
    process: AttackProcess,
    view: Path,
    out: Path,
    budget: Budget,
    progress: Progress,
    *,
    spent: float = 0.0,
) -> Learned:
    """Let the attack prepare on a view that holds nothing of the release.

    Its preparations took `spent` seconds.
    """
    job = {"action": "prepare", "view": str(view), "out": str(out)}
    taken = process.ask(job, budget, progress, spent=spent)
    return Learned(_tensors(out / PREPARED), taken)


def attack(
    process: AttackProcess,
    view: Path,
    out: Path,
    prepared: Path,
    budget: Budget,
    progress: Progress,
    *,
    spent: float = 0.0,
) -> Attacked:
    """Let the attack at the release, given what it has prepared in `spent` seconds."""
    job = {
        "action": "reconstruct",
        "view": str(view),
        "out": str(out),
        "prepared": str(prepared),
    }
    taken = process.ask(job, budget, progress, spent=spent)
    diagnostics = json.loads((out / DIAGNOSTICS).read_text(encoding="utf-8"))
    found = unpack(_tensors(out / FOUND), diagnostics)
    return Attacked(found, taken)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise CellFailed(f"the attack left no readable result: {error}") from None

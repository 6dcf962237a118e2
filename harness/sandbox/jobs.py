"""What an attack's process does: share, prepare, reconstruct, or call what a job names."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from harness.api import Attack, Progress, Reconstruction
from harness.asking.registry import load_factory, registry
from harness.sandbox.folder import Frame, open_view, read_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGES, TARGETS, ROWS, BATCHES, CLAIM = "images", "targets", "rows", "batches", "claims."
PREPARED = "prepared.safetensors"


def _attack(frame: Frame) -> Attack[Any]:
    known = registry()
    spec = known.attack(frame.attack.name)
    factory = load_factory(spec, known.origin("attacks", spec.name))
    attack: Attack[Any] = factory(spec.config.model_validate(frame.attack.config))
    return attack


def share(job: Mapping[str, Any], progress: Progress) -> None:
    """Make what several attacks share, from what all of them hold before the release."""
    folder, out = Path(job["view"]), Path(job["out"])
    frame = read_frame(folder)
    view = open_view(folder, frame)
    function = _named(job["factory"])
    torch.manual_seed(view.rng.stream(what="torch").seed())
    made = function(view, frame.budget, progress, **job["arguments"])
    save_file(_plain(made), out / PREPARED)


def call(job: Mapping[str, Any], _progress: Progress) -> None:
    """Call the function that the job names with the job itself; it is watched as an attack is."""
    _named(job["function"])(job)


def _named(text: str) -> Any:
    """What `module:name` says, imported."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


def prepare(job: Mapping[str, Any], progress: Progress) -> None:
    """Let an attack learn from what it holds before the release, and keep what it learned."""
    folder, out = Path(job["view"]), Path(job["out"])
    frame = read_frame(folder)
    view = open_view(folder, frame)
    torch.manual_seed(view.rng.stream(what="torch").seed())
    learned = _attack(frame).prepare(view, frame.budget, progress)
    save_file(_plain(learned), out / PREPARED)


def reconstruct(job: Mapping[str, Any], progress: Progress) -> None:
    """Let an attack at the release, and keep what it brings back."""
    folder, out, prepared = Path(job["view"]), Path(job["out"]), job["prepared"]
    frame = read_frame(folder)
    view = open_view(folder, frame)
    learned = load_file(prepared, device=str(view.device))
    torch.manual_seed(view.rng.stream(what="torch").seed())
    found = _attack(frame).reconstruct(view, learned, frame.budget, progress)
    if not isinstance(found, Reconstruction):
        raise TypeError(f"reconstruct must return a Reconstruction, not {type(found).__name__}")
    save_file(pack(found), out / "reconstruction.safetensors")
    diagnostics = {name: _finite(name, value) for name, value in found.diagnostics.items()}
    (out / "diagnostics.json").write_text(json.dumps(diagnostics), encoding="utf-8")


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the diagnostic '{name}' is {value}; leave out what has no value")
    return float(value)


def _plain(tensors: Any) -> dict[str, Tensor]:
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def pack(found: Reconstruction) -> dict[str, Tensor]:
    """A reconstruction's tensors by name."""
    named = {
        IMAGES: found.images,
        TARGETS: found.targets,
        ROWS: found.rows,
        BATCHES: found.batches,
    }
    tensors = {name: tensor for name, tensor in named.items() if tensor is not None}
    tensors |= {CLAIM + name: tensor for name, tensor in found.claims.items()}
    return _plain(tensors)


def unpack(tensors: dict[str, Tensor], diagnostics: dict[str, float]) -> Reconstruction:
    """The inverse of `pack`."""
    claims = {
        name.removeprefix(CLAIM): tensor
        for name, tensor in tensors.items()
        if name.startswith(CLAIM)
    }
    return Reconstruction(
        images=tensors.get(IMAGES),
        targets=tensors.get(TARGETS),
        rows=tensors.get(ROWS),
        batches=tensors.get(BATCHES),
        claims=claims,
        diagnostics=diagnostics,
    )

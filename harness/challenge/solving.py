"""Attacking a pack as a stranger does: an attack of the harness gets what the pack publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from harness.api import (
    CellFailed,
    NotApplicable,
    Reconstruction,
    Release,
    ReleaseKind,
    Samples,
    Scale,
    Splits,
    UsageError,
)
from harness.asking.registry import registry
from harness.asking.request import parse_one
from harness.challenge import IMAGES, ROWS, TARGETS
from harness.challenge.pack import Pack, read_pack
from harness.challenge.public import drawn, stranger
from harness.packages.statement import Statement
from harness.running.attack import AttackStage
from harness.running.release import ReleaseStage
from harness.running.run import Observer, Run
from harness.running.samples import Space
from harness.store.paths import disk_errors, write_atomically
from harness.store.provenance import sha256_of

THREAT_MODEL = "released"
"""What a pack publishes is what this threat model grants."""


def solve(
    folder: Path, attack: str, out: Path, observer: Observer, **options: Any
) -> Mapping[str, float]:
    """Run an attack on a pack and write its submission; gives the attack's own diagnostics.

    `options` are those of `harness evaluate`. What was found is stored as any attack's result:
    the same command on the same pack only writes it again. CellFailed where the attack cannot be
    run on this pack, or fails.
    """
    with disk_errors(out):
        if out.is_dir() or not out.resolve().parent.is_dir():
            raise UsageError(f"{out} cannot be written: it is a folder, or lies in none.")
    if registry().spec("attacks", parse_one(attack).name).members:
        raise UsageError(f"'{attack}' is many attacks; name one of them.")
    pack = read_pack(folder)
    run = _run(pack, attack, observer, options)
    plan = run.cell.main
    if plan is None:
        reason = str(run.cell.reason).removesuffix("; ask for a stronger one with --threat-model")
        raise NotApplicable(f"a pack does not hold what '{attack}' needs: {reason}")
    with run.watched("load"):
        splits = _splits(pack.said, drawn(run, pack).public)
    run.give(Space.of(run.cell), splits)
    tensors = {"encodings": pack.encodings, "labels": pack.labels}
    run.give(ReleaseStage.of(run.cell), Release(ReleaseKind.ENCODINGS, tensors, {}, {}))
    with run:
        found = run(AttackStage(run.cell, plan)).reconstruction
    write_atomically(out.resolve(), save(_tensors(found, pack.said.preprocessing.scale)))
    return found.diagnostics


def _run(pack: Pack, attack: str, observer: Observer, options: dict[str, Any]) -> Run:
    """A run whose keys name the pack: it stands for the owner, and its pool for the splits."""
    own, steps = pack.described, pack.said.preprocessing
    fixed = {"only": "privacy", "release": "encodings", "threat_model": THREAT_MODEL}
    run = stranger(pack, observer, attack=attack, **fixed, **options)
    pool = [own.public.sha256, pack.said.rows, steps.model_dump(mode="json"), pack.said.classes]
    data = {run.cell.dataset.written: sha256_of(pool)}
    run.cell = replace(run.cell, owner=f"pack {own.id}", fingerprints=data)
    return run


def _splits(said: Statement, public: Samples) -> Splits:
    """The public images, and as many blanks as there are private ones."""
    blank = Samples(
        torch.zeros(said.rows, *said.preprocessing.shape, dtype=torch.uint8),
        torch.zeros(said.rows, dtype=torch.int64),
    )
    return Splits(blank, public, public[:0], said.preprocessing.scale, said.classes)


def _tensors(found: Reconstruction, scale: Scale) -> dict[str, Tensor]:
    """A reconstruction as a submission: images in [0,1]."""
    if found.images is None:
        raise CellFailed("the attack makes claims and returned no images: nothing to submit")
    images = scale.within(scale.restore(found.images.float()))
    tensors = {IMAGES: images, ROWS: found.rows, TARGETS: found.targets}
    return {name: each.cpu().contiguous() for name, each in tensors.items() if each is not None}

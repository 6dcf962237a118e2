"""Attacking a pack as a stranger does: an attack of the harness gets what the pack publishes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.api import (
    CellFailed,
    NotApplicable,
    Reconstruction,
    Release,
    ReleaseKind,
    Samples,
    Splits,
    UsageError,
)
from harness.asking.plan import AttackPlan
from harness.asking.registry import registry
from harness.asking.selector import parse_one
from harness.challenge import IMAGES, ROWS, TARGETS
from harness.challenge.pack import Pack, Statement, read_pack
from harness.challenge.public import drawn, stranger
from harness.running.attacker import Attacker, desks
from harness.running.codec import unpack_attacked
from harness.running.context import Context
from harness.running.keys import Keys
from harness.running.observer import Observer
from harness.running.owner import Owner
from harness.sandbox.process import Workers
from harness.store.artifacts import save_tensors
from harness.store.paths import disk_errors, scratch_folder, sweep

THREAT_MODEL = "released"
"""What a pack publishes is what this threat model grants."""


@dataclass(frozen=True)
class PackKeys(Keys):
    """Keys of what is done to one pack: `owner` names the pack, and its own pool is the splits."""

    statement: Statement

    @cached_property
    def load(self) -> str:
        """Key of the public images and of the frame around them."""
        own = self.statement
        frame = [own.private, own.shape, own.classes, own.mean, own.std]
        return self._key("load", pool=own.public.sha256, frame=frame)


class Unknown(Owner):
    """The owner of a pack as a stranger knows it: what was published, and blanks for the rest."""

    def __init__(self, context: Context, pack: Pack, public: Samples) -> None:
        super().__init__(context)
        self.pack = pack
        self.public = public

    @cached_property
    def splits(self) -> Splits:
        """The public images, and as many blanks as there are private ones."""
        statement = self.pack.described
        blank = Samples(
            torch.zeros(statement.private, *statement.shape, dtype=torch.uint8),
            torch.zeros(statement.private, dtype=torch.int64),
        )
        return Splits(blank, self.public, self.public[:0], statement.scale, statement.classes)

    @property
    def release(self) -> Release:
        """What the pack holds; no secrets."""
        tensors = {"encodings": self.pack.encodings, "labels": self.pack.labels}
        return Release(ReleaseKind.ENCODINGS, tensors, {}, {})


def solve(
    folder: Path, attack: str, out: Path, observer: Observer, **options: Any
) -> Mapping[str, float]:
    """Run an attack on a pack and write its submission; gives the attack's own diagnostics.

    `options` are those of `harness evaluate`. What was found is stored as any attack's result:
    the same command on the same pack only writes it again. CellFailed where the attack cannot be
    run on this pack, or fails.
    """
    _check_place(out)
    if registry().attack(parse_one(attack).name).members:
        raise UsageError(f"'{attack}' is many attacks; name one of them.")
    pack = read_pack(folder)
    context = _context(pack, attack, observer, options)
    plan = context.cell.main
    if plan is None:
        reason = str(context.cell.reason).removesuffix(
            "; ask for a stronger one with --threat-model"
        )
        raise NotApplicable(f"a pack does not hold what '{attack}' needs: {reason}")
    with context.watched("load"):
        public = drawn(context, pack.described).public
    found = _attacked(context, plan, Unknown(context, pack, public))
    _write(out, _tensors(found, pack.described))
    return found.diagnostics


def _check_place(out: Path) -> None:
    with disk_errors(out):
        if out.is_dir() or not out.resolve().parent.is_dir():
            raise UsageError(f"{out} cannot be written: it is a folder, or lies in none.")


def _context(pack: Pack, attack: str, observer: Observer, options: dict[str, Any]) -> Context:
    fixed = {"only": "privacy", "release": "encodings", "threat_model": THREAT_MODEL}
    context = stranger(pack.described, observer, attack=attack, **fixed, **options)
    keys = PackKeys(context.cell, f"pack {pack.described.id}", pack.described)
    return replace(context, keys=keys)


def _attacked(context: Context, plan: AttackPlan, owner: Owner) -> Reconstruction:
    torch.set_num_threads(context.cell.threads)
    for root in (context.store.root, desks()):
        sweep(root)
    with scratch_folder(desks(), "solve") as scratch:
        workers = Workers(scratch, context.cell.threads)
        try:
            return unpack_attacked(Attacker(context, owner, workers).attacked(plan))
        finally:
            workers.close()


def _tensors(found: Reconstruction, statement: Statement) -> dict[str, Tensor]:
    """A reconstruction as a submission: images in [0,1]."""
    if found.images is None:
        raise CellFailed("the attack makes claims and returned no images: nothing to submit")
    images = statement.scale.within(statement.scale.restore(found.images.float()))
    tensors = {IMAGES: images, ROWS: found.rows, TARGETS: found.targets}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _write(out: Path, tensors: Mapping[str, Tensor]) -> None:
    """Whole or not at all."""
    path = out.resolve()
    part = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with disk_errors(out):
            save_tensors(tensors, part)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)

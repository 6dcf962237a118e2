"""What of a cell depends on this machine: device, threads, and which data is here."""

from __future__ import annotations

import hashlib
import os
import resource
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness.api.errors import AssetUnavailable, UsageError
from harness.assets.lookup import locate
from harness.store.provenance import available_threads, can_compute_on, device_class

if TYPE_CHECKING:
    from pathlib import Path

    from harness.asking.plan import Cell
    from harness.asking.selector import Resolved


def equip(cell: Cell, root: Path, secret: bytes | None = None) -> Cell:
    """Fix what depends on this machine: device, threads, and which assets are here.

    `secret` is the owner's key, where there is one. AssetUnavailable where what the cell cannot do
    without is not here.
    """
    if lacking := lacks(cell, root):
        raise AssetUnavailable(lacking)
    return settle(cell, root, secret)


def lacks(cell: Cell, root: Path) -> str:
    """What a cell cannot do without and is not here, and how to get it; empty if nothing."""
    try:
        for resolved in filter(None, (cell.dataset, cell.public, cell.space)):
            for asset in resolved.spec.assets:
                locate(asset, root)
    except AssetUnavailable as error:
        return str(error)
    return ""


def settle(cell: Cell, root: Path, secret: bytes | None = None) -> Cell:
    """As `equip`, of a cell that need not run: its data may be missing."""
    fingerprints = {
        resolved.written: _fingerprint_of(resolved)
        for resolved in filter(None, (cell.dataset, cell.public))
        if resolved.spec.fingerprint
    }
    unavailable = dict(cell.unavailable)
    for spec in cell.metrics:
        try:
            for asset in spec.assets:
                locate(asset, root)
        except AssetUnavailable as error:
            unavailable[spec.name] = str(error)
    return replace(
        cell,
        device=device_class(cell.request.device),
        threads=cell.request.threads or available_threads(),
        unavailable=unavailable,
        fingerprints=fingerprints,
        owner=fingerprint(secret),
    )


def fingerprint(secret: bytes | None) -> str:
    """What a record says of the owner's key: never the key."""
    if secret is None:
        return "derived from the seed"
    return f"sha256:{hashlib.sha256(b'owner key' + secret).hexdigest()[:16]}"


def _fingerprint_of(resolved: Resolved) -> str:
    """What names a dataset's data where no asset does."""
    module, _, function = resolved.spec.fingerprint.partition(":")
    found: str = getattr(import_module(module), function)(resolved.config)
    return found


def check_machine(device: str) -> None:
    """UsageError unless torch is installed and sees the device."""
    if find_spec("torch") is None:
        raise UsageError("An evaluation needs torch, which is not installed; stored ones do not.")
    if not can_compute_on(device):
        raise UsageError(f"torch sees no {device} device here; leave --device at auto.")


def make_deterministic(threads: int) -> None:
    """Fixed thread count, and the deterministic form of every operation that has one."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)

"""Looking after the cache: what it holds, what may go, what is corrupt."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from harness.api.errors import IntegrityError
from harness.store.artifacts import FACTS, Store
from harness.store.features import FOLDER as FEATURES
from harness.store.features import damaged
from harness.store.paths import (
    KEY,
    REMEDY,
    cache_key,
    cache_root,
    disk_errors,
    holding,
    listed,
)
from harness.store.record import CELLS, FAILURES, Records

DAY = 86_400.0


def summary() -> dict[str, Any]:
    """Where the cache is, and how many artifacts, records and bytes are in it."""
    root = cache_root()
    stages: dict[str, tuple[int, int]] = {}
    with disk_errors(root):
        for folder in _artifact_folders(root):
            count, size = stages.get(folder.parent.name, (0, 0))
            stages[folder.parent.name] = (count + 1, size + _bytes(folder))
        records = len(_records(root))
        assets, features = _bytes(root / "assets"), _bytes(root / FEATURES)
    return {
        "root": str(root),
        "artifacts": stages,
        "records": records,
        "features_bytes": features,
        "assets_bytes": assets,
    }


def _artifact_folders(root: Path) -> Iterator[Path]:
    for stage in listed(root / "artifacts"):
        yield from holding(stage, FACTS)


def _feature_folders(root: Path) -> list[Path]:
    return [path for path in listed(root / FEATURES) if path.is_dir()]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def prune(days: float) -> tuple[int, int]:
    """Drop artifacts and features unused for `days`, and what killed runs left.

    Returns how many were dropped, and their bytes.
    """
    root = cache_root()
    horizon = time.time() - days * DAY
    count = size = 0
    with disk_errors(root):
        for folder in chain(_artifact_folders(root), _feature_folders(root)):
            if folder.stat().st_mtime <= horizon:
                count, size = count + 1, size + _bytes(folder)
                Store(root).remove(folder)
        for left in listed(root / "tmp"):
            if left.stat().st_mtime <= min(horizon, time.time() - DAY):
                shutil.rmtree(left, ignore_errors=True)
    return count, size


def verify(*, remove: bool) -> list[str]:
    """Check all hashes and seals; names what is corrupt, and drops it if asked to."""
    faults = []
    for fault, drop in _faults(cache_root()):
        faults.append(fault)
        if remove:
            drop()
    return faults


def adopt() -> int:
    """Seal what is whole but for a seal of this cache; how many entries are sealed anew.

    Features are not: they are extracted again.
    """
    root = cache_root()
    given: list[tuple[Path, Callable[[Path], object], Callable[[Path], object]]] = [
        *((path, Store(root).check, Store(root).adopt) for path in _artifact_folders(root)),
        *((path, Records(root).load, Records(root).adopt) for path in _records(root)),
        *((path, Records(root).named_in, Records(root).adopt) for path in _pointers(root)),
    ]
    return sum(_adopted(*each) for each in given)


def _adopted(path: Path, check: Callable[[Path], object], seal: Callable[[Path], object]) -> bool:
    """Whether an entry was whole, and lacked nothing but the seal."""
    try:
        check(path)
    except IntegrityError:
        with suppress(IntegrityError):
            seal(path)
            return True
    return False


def _records(root: Path) -> list[Path]:
    return listed(root / "records", ".json")


def _pointers(root: Path) -> Iterator[Path]:
    for folder in (CELLS, FAILURES):
        yield from (path for path in listed(root / folder) if not path.name.startswith("."))


def _faults(root: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is corrupt, in words, and what drops it."""
    try:
        cache_key(root)
    except IntegrityError as error:
        yield _fault(error), (root / KEY).unlink
        if (root / KEY).exists():  # without it nothing can be said of the rest
            return
    for folder in _artifact_folders(root):
        try:
            Store(root).check(folder)
        except IntegrityError as error:
            yield _fault(error), partial(Store(root).remove, folder)
    for folder in _feature_folders(root):
        if spoilt := damaged(folder):
            fault = f"{folder}: {spoilt} rows of features do not have their hash"
            yield fault, partial(Store(root).remove, folder)
    for check, paths in (
        (Records(root).load, _records(root)),
        (Records(root).named_in, _pointers(root)),
    ):
        for path in paths:
            try:
                check(path)
            except IntegrityError as error:
                yield _fault(error), path.unlink


def _fault(error: IntegrityError) -> str:
    """Without what to do about it."""
    return str(error).partition(f". {REMEDY}")[0]

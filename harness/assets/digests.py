"""Hashes of files, and the memory of having checked them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from harness.api import Asset, AssetFile

Stamp = dict[str, str | int]


def digest_of(path: Path, algorithm: str) -> str:
    """`algorithm:hex` of a file's bytes; `algorithm` is `md5` or `sha256`."""
    with path.open("rb") as stream:
        # MD5 only compares with sums published years ago, on files from named sources.
        state = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{state.hexdigest()}"


@dataclass(frozen=True)
class Mismatch:
    """One file that is not what its digest says; `found` is empty where there is none."""

    file: AssetFile
    found: str

    def __str__(self) -> str:
        if not self.found:
            return f"{self.file.name} is missing"
        return f"{self.file.name}: expected {self.file.digest}, found {self.found}"


def mismatch(file: AssetFile, folder: Path) -> Mismatch | None:
    """Hash one file; what is wrong with it, or None."""
    path = folder / file.name
    if not path.is_file():
        return Mismatch(file, "")
    found = digest_of(path, file.digest.partition(":")[0])
    return None if found == file.digest else Mismatch(file, found)


def first_mismatch(asset: Asset, folder: Path) -> Mismatch | None:
    """Hash every file of an asset; the first that is wrong, or None."""
    return next((bad for file in asset.files if (bad := mismatch(file, folder))), None)


def _stamp(file: AssetFile, folder: Path) -> Stamp:
    path = folder / file.name
    state = path.stat()
    return {
        "path": str(path),
        "digest": file.digest,
        "bytes": state.st_size,
        "mtime_ns": state.st_mtime_ns,
    }


def _remembered(memory: Path) -> dict[str, Stamp]:
    try:
        known = json.loads(memory.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(stamps: dict[str, Stamp], memory: Path) -> None:
    fresh = memory.with_name(f"{memory.name}.new")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(stamps, indent=1, sort_keys=True))
        fresh.replace(memory)
    except OSError:
        # A cache that cannot be written costs a hash per run, not a run.
        return


def check(asset: Asset, folder: Path, memory: Path) -> Mismatch | None:
    """Verify an asset's files, hashing only those that changed since they last were right."""
    known = _remembered(memory)
    stamps: dict[str, Stamp] = {}
    for file in asset.files:
        if not (folder / file.name).is_file():
            return Mismatch(file, "")
        stamp = _stamp(file, folder)
        if known.get(file.name) != stamp and (bad := mismatch(file, folder)):
            return bad
        stamps[file.name] = stamp
    if stamps != known:
        _remember(stamps, memory)
    return None

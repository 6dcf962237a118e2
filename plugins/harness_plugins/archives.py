"""Reading single members of tar archives, one by one and by name; nothing is extracted."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Collection
from pathlib import Path


def members(archive: Path, names: Collection[str]) -> dict[str, bytes]:
    """The bytes of the named regular members of a tar archive, in one pass.

    A leading `./` in the archive is overlooked. KeyError names what is missing.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for entry in tar:
            name = entry.name.removeprefix("./")
            stream = tar.extractfile(entry) if name in names and entry.isreg() else None
            if stream is not None:
                found[name] = stream.read()
    missing = sorted(set(names) - set(found))
    if missing:
        raise KeyError(f"{archive.name} holds no {', '.join(missing)}")
    return found


def gunzip(arrived: Path, folder: Path) -> None:
    """Write each `NAME.gz` of the arrived folder as `NAME`."""
    for packed in sorted(arrived.glob("*.gz")):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))


def unchanged(arrived: Path, folder: Path) -> None:
    """Take the arrived files as they are."""
    for file in sorted(arrived.iterdir()):
        file.replace(folder / file.name)

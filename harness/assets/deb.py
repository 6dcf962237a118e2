"""Debian packages without dpkg: an `ar` archive of small members, one of them a tar of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAGIC = b"!<arch>\n"
HEADER = 60


def _members(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each member; the stream stands at its first byte meanwhile."""
    while header := stream.read(HEADER):
        if len(header) < HEADER or header[58:] != b"`\n":
            raise ValueError("a broken member header in the Debian package")
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        start = stream.tell()
        yield name, size
        # Members begin at even offsets.
        stream.seek(start + size + size % 2)


def data_archive(package: Path) -> Path:
    """Write the `data.tar.*` of a .deb beside it and return its path."""
    with package.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{package.name} is not a Debian package")
        for name, size in _members(stream):
            if name.startswith("data.tar"):
                target = package.with_name(name)
                target.write_bytes(stream.read(size))
                return target
    raise ValueError(f"{package.name} holds no data archive")

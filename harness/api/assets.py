"""Where the bytes of a dataset or a network come from, and how they are checked.

An asset is a set of files with known hashes. Its sources are tried in order. What cannot be
reached is skipped with a reason; what arrives with a wrong hash is an error. Nothing that
arrives is executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class AssetFile:
    """One final file: `digest` is `md5:…` or `sha256:…` of its bytes."""

    name: str
    digest: str


@dataclass(frozen=True)
class Source:
    """One place to get an asset from.

    `package`: a folder inside an installed package, `where="pkg.sub:folder"`; never fetched.
    `url`: files by HTTPS, resumed when cut off, `where` their addresses parted by spaces.
    `pip`, `npm`, `apt`: a package of that registry through its ordinary client, `where` the
    pinned requirement in the client's own syntax. `pip` needs its archive's sha256 in `digest`;
    `apt` delivers the package's `data.tar.*`.
    `unpack="module:function"` turns what arrived into the asset's files: `(Path, Path) -> None`
    takes the arrived file and an empty folder. Without it, what arrived is the only file.
    """

    kind: Literal["package", "url", "pip", "npm", "apt"]
    where: str
    unpack: str | None = None
    digest: str | None = None
    megabytes: float = 0.0


@dataclass(frozen=True)
class Asset:
    """A named set of files, its licence, and its sources in order of preference."""

    name: str
    summary: str
    licence: str
    files: tuple[AssetFile, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class AssetFolder:
    """Verified assets, as plugins receive them."""

    folders: dict[str, Path]

    def path(self, asset: str, file: str) -> Path:
        """The path of one file of one asset."""
        return self.folders[asset] / file

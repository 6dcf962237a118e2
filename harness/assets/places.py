"""Where an asset's files lie: below the cache root, or inside an installed package."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass
from pathlib import Path

from harness.api import Asset, Source


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

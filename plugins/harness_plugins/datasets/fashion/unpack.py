"""From the data archive of Debian's `dataset-fashion-mnist` to the four idx files."""

from __future__ import annotations

import gzip
from pathlib import Path

from harness_plugins.archives import members
from harness_plugins.datasets.fashion import FASHION


def from_debian(arrived: Path, folder: Path) -> None:
    """Unzip each file out of the archive."""
    inner = "usr/share/datasets/fashion-mnist"
    names = [file.name for file in FASHION.files]
    found = members(arrived, [f"{inner}/{name}.gz" for name in names])
    for name in names:
        (folder / name).write_bytes(gzip.decompress(found[f"{inner}/{name}.gz"]))

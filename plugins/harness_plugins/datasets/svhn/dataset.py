"""Reading SVHN's Matlab files.

`X` is uint8 [32, 32, 3, n] (rows, columns, colours, images), `y` [n, 1] holds 1 to 10; 10 is
the digit 0.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch

from harness.api import AssetFolder, Collection, Config, Dataset, Samples, Scale

SCALE = Scale(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970))
CLASSES = tuple("0123456789")


def _variables(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        found: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except (MatReadError, NotImplementedError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"{path.name} is not a Matlab file of SVHN: {error}") from error
    return found


def read(path: Path) -> Samples:
    """Images [n, 3, 32, 32] uint8 and labels 0..9 [n]; ValueError for anything else."""
    found = _variables(path)
    images, labels = found.get("X"), found.get("y")
    if images is None or labels is None or images.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path.name} holds no X [32, 32, 3, n] with y [n, 1], as SVHN does")
    # A view: Matlab's order keeps the bytes of one image together.
    tensor = torch.from_numpy(images).permute(3, 2, 0, 1)
    digits = torch.from_numpy(labels.astype("int64")).flatten()
    if len(digits) != len(tensor) or digits.min() < 1 or digits.max() > 10:
        raise ValueError(f"{path.name}: y must give each image a label from 1 to 10")
    return Samples(tensor, digits % 10)


class Svhn(Dataset[Config]):
    """73 257 train and 26 032 test images [n, 3, 32, 32] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, in memory (305 MB)."""
        train, test = (read(assets.path("svhn", f"{p}_32x32.mat")) for p in ("train", "test"))
        return Collection(train, test, SCALE, CLASSES)

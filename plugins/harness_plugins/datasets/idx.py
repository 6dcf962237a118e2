"""The idx files of MNIST and of the sets made in its likeness.

Two zero bytes, a type code (8: unsigned byte), the number of axes, each axis as a big-endian
32-bit count, then the values.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.api import AssetFolder, Samples

UNSIGNED_BYTE = 8


def read(path: Path) -> Tensor:
    """A file of unsigned bytes as a memory-mapped uint8 tensor; ValueError for anything else."""
    with path.open("rb") as stream:
        zeros, code, axes = struct.unpack(">HBB", stream.read(4))
        shape = struct.unpack(f">{axes}I", stream.read(4 * axes))
    if zeros or code != UNSIGNED_BYTE:
        raise ValueError(f"{path.name} is not an idx file of unsigned bytes")
    # Copy-on-write, so that torch is given memory it may call writable.
    return torch.from_numpy(np.memmap(path, np.uint8, mode="c", offset=4 + 4 * axes, shape=shape))


def samples(assets: AssetFolder, asset: str, part: str) -> Samples:
    """`part` is `train` or `t10k`: images [n, 1, 28, 28] uint8 with labels [n]."""
    images = read(assets.path(asset, f"{part}-images-idx3-ubyte"))
    labels = read(assets.path(asset, f"{part}-labels-idx1-ubyte"))
    return Samples(images.unsqueeze(1), labels.long())

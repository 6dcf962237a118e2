"""Which training images a dataset keeps for the public pool, whatever is drawn from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

POOL = 5000
"""Images that CIFAR-10 and Fashion-MNIST reserve."""


def by_content(images: Tensor, count: int = POOL) -> Tensor:
    """[n] bool: the `count` of images [n, ...] with the smallest SHA-256 of their bytes."""
    return smallest([row.tobytes() for row in images.contiguous().numpy()], count)


def smallest(contents: Sequence[bytes], count: int) -> Tensor:
    """[n] bool: the `count` of contents whose SHA-256 is smallest, of equal ones the first."""
    digests = [hashlib.sha256(content).digest() for content in contents]
    order = sorted(range(len(digests)), key=lambda row: digests[row])
    kept = torch.zeros(len(digests), dtype=torch.bool)
    kept[order[:count]] = True
    return kept

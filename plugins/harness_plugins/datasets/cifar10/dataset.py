"""Reading CIFAR-10's binary batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from harness.api import AssetFolder, Collection, Config, Dataset, Samples
from harness_plugins.datasets.classes_and_scales import CIFAR10_CLASSES, CIFAR10_SCALE
from harness_plugins.datasets.reserved import by_content

RECORD = 1 + 3 * 32 * 32


def read_batch(path: Path) -> Samples:
    """One batch, memory-mapped: images [n, 3, 32, 32] uint8."""
    # Copy-on-write, so that torch is given memory it may call writable.
    rows = torch.from_numpy(np.memmap(path, np.uint8, mode="c")).view(-1, RECORD)
    return Samples(rows[:, 1:].view(-1, 3, 32, 32), rows[:, 0].long())


def joined(parts: list[Samples]) -> Samples:
    """Several batches as one, copied to memory."""
    images = torch.cat([part.images for part in parts])
    return Samples(images, torch.cat([part.labels for part in parts]))


class Cifar10(Dataset[Config]):
    """50 000 train and 10 000 test images [n, 3, 32, 32] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All six batches; 5000 train images are reserved."""
        parts = [read_batch(assets.path("cifar10", f"data_batch_{i}.bin")) for i in range(1, 6)]
        train, test = joined(parts), read_batch(assets.path("cifar10", "test_batch.bin"))
        reserved = by_content(train.images)
        return Collection(train, test, CIFAR10_SCALE, CIFAR10_CLASSES, reserved)

"""Reading CIFAR-5m where it lies."""

from __future__ import annotations

from pathlib import Path

import torch

from harness.api import AssetFolder, Collection, Dataset, Samples, UsageError
from harness_plugins.datasets.cifar5m import Cifar5mConfig
from harness_plugins.datasets.cifar5m.files import TEST_PART, part_file
from harness_plugins.datasets.cifar5m.mapping import mapped
from harness_plugins.datasets.classes_and_scales import CIFAR10_CLASSES, CIFAR10_SCALE


def read(path: Path) -> Samples:
    """One part: images [n, 3, 32, 32] uint8, a view of the file's [n, 32, 32, 3], and labels.

    UsageError where the arrays are not such.
    """
    images, labels = (mapped(path, name) for name in ("X.npy", "Y.npy"))
    if images.dtype != "uint8" or images.shape[1:] != (32, 32, 3):
        raise UsageError(
            f"'cifar5m': X in {path} must be uint8 [n,32,32,3]; it is {images.dtype} "
            f"{list(images.shape)}"
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise UsageError(f"'cifar5m': Y in {path} must be one integer for each of X's images")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(CIFAR10_CLASSES):
        raise UsageError(
            f"'cifar5m': Y in {path} must be labels from 0 to {len(CIFAR10_CLASSES) - 1}"
        )
    return Samples(
        torch.from_numpy(images).permute(0, 3, 1, 2),
        torch.from_numpy(labels.astype("int64")),
    )


class Cifar5m(Dataset[Cifar5mConfig]):
    """About 1 000 000 train and 1 000 000 test images [n, 3, 32, 32] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images of both parts, mapped in place; labels are read (8 MB a part)."""
        config = self.config
        train, test = (read(part_file(config.path, p)) for p in (config.part, TEST_PART))
        return Collection(train, test, CIFAR10_SCALE, CIFAR10_CLASSES)

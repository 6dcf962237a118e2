"""Reading Fashion-MNIST."""

from __future__ import annotations

from harness.api import AssetFolder, Collection, Config, Dataset
from harness_plugins.datasets import idx
from harness_plugins.datasets.classes_and_scales import FASHION_CLASSES, FASHION_SCALE
from harness_plugins.datasets.reserved import by_content


class Fashion(Dataset[Config]):
    """60 000 train and 10 000 test images [n, 1, 28, 28] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, memory-mapped; 5000 train images are reserved."""
        train, test = (idx.samples(assets, "fashion", part) for part in ("train", "t10k"))
        reserved = by_content(train.images)
        return Collection(train, test, FASHION_SCALE, FASHION_CLASSES, reserved)

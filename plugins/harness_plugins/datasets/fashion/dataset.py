"""Reading Fashion-MNIST."""

from __future__ import annotations

from harness.api import AssetFolder, Collection, Config, Dataset, Scale
from harness_plugins.datasets import idx

SCALE = Scale(mean=(0.2860,), std=(0.3530,))
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class Fashion(Dataset[Config]):
    """60 000 train and 10 000 test images [n, 1, 28, 28] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, memory-mapped."""
        train, test = (idx.samples(assets, "fashion", part) for part in ("train", "t10k"))
        return Collection(train, test, SCALE, CLASSES)

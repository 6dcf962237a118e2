"""Reading the embedded images."""

from __future__ import annotations

import numpy as np
import torch

from harness.api import AssetFolder, Collection, Config, Dataset, Samples
from harness_plugins.datasets.classes_and_scales import FASHION_CLASSES, FASHION_SCALE


class FashionMini(Dataset[Config]):
    """6 000 train and 2 000 test images [n, 1, 28, 28] uint8, each class alike."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images."""
        with np.load(assets.path("fashion-mini", "fashion-mini.npz"), allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        train, test = (
            Samples(arrays[f"{part}_images"], arrays[f"{part}_labels"].long())
            for part in ("train", "test")
        )
        return Collection(train, test, FASHION_SCALE, FASHION_CLASSES)

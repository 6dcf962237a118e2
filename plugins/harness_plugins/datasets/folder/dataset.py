"""Reading a folder of one's own images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from harness.api import AssetFolder, Collection, Dataset, Samples, Scale, UsageError
from harness_plugins.datasets.folder import FolderConfig
from harness_plugins.datasets.folder.files import Classes, layout, split
from harness_plugins.datasets.folder.pictures import mode, moments, stack


def scale(images: NDArray[np.uint8]) -> Scale:
    """The scale of these images [n, c, h, w]; UsageError where a channel never varies."""
    mean, std = moments(images)
    if min(std) == 0:
        raise UsageError("'folder': a channel has one and the same value in all train images")
    return Scale(mean, std)


class Folder(Dataset[FolderConfig]):
    """Images [n, c, size, size] uint8, c one where every image is grey, else three."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, in memory, class by class."""
        held = layout(self.config.path)
        modes = {mode(path) for path in held.files}
        names = tuple(held.train)
        train, test = (
            self._samples(part, names, "RGB" if "RGB" in modes else "L")
            for part in split(held, self.config.test)
        )
        return Collection(train, test, scale(train.images.numpy()), names)

    def _samples(self, part: Classes, names: tuple[str, ...], target: str) -> Samples:
        paths = [path for images in part.values() for path in images]
        labels = [names.index(name) for name, images in part.items() for _ in images]
        images = stack(paths, self.config.size, target)
        return Samples(torch.from_numpy(images), torch.tensor(labels))

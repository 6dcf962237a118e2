"""A dataset made on the spot: stripes in three directions."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import AssetFolder, Collection, Config, Dataset, Samples, Scale

SIDE = 12


class Stripes(Dataset[Config]):
    """1200 train and 300 test images [n, 1, 12, 12] uint8, each one different."""

    def load(self, assets: AssetFolder) -> Collection:
        """The same images every time: the generator is the dataset's own."""
        generator = torch.Generator().manual_seed(12)
        train, test = _samples(1200, generator), _samples(300, generator)
        return Collection(train, test, Scale((0.5,), (0.3,)), ("across", "upright", "slanting"))


def _samples(n: int, generator: torch.Generator) -> Samples:
    """Sine waves of random width and phase along one of three directions, and a little noise."""
    labels = torch.randint(3, (n,), generator=generator)
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])[labels]
    waves = 1 + 2 * torch.rand(n, 1, 1, generator=generator)
    phase = torch.rand(n, 1, 1, generator=generator)
    along = (directions.view(n, 2, 1, 1) * _grid()).sum(1)
    images = 0.5 + 0.4 * torch.sin(2 * torch.pi * (waves * along + phase))
    images += 0.03 * torch.randn(n, SIDE, SIDE, generator=generator)
    return Samples((255 * images.clamp(0, 1)).round().byte().unsqueeze(1), labels)


def _grid() -> Tensor:
    """Row and column of each pixel [2, 12, 12], in [0,1)."""
    steps = torch.arange(SIDE) / SIDE
    return torch.stack(torch.meshgrid(steps, steps, indexing="ij"))

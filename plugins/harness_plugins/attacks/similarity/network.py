"""Two networks that bring an encoding and the images in it to one place on a sphere."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from harness_plugins.networks.convolutions import convolutions

_WIDTHS = ((32, 2), (64, 2), (128, 2), (64, 1))
_EMBEDDING = 256
_BLOCK = 512


class Tower(nn.Module):
    """Samples of `shape` (c, h, w) to unit vectors of 256 values."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers, values = convolutions((2 * shape[0], *shape[1:]), _WIDTHS)
        self.last = nn.Linear(values, _EMBEDDING)

    def forward(self, samples: Tensor) -> Tensor:
        """[n, 256] of samples [n, c, h, w] at any level; their absolute values are shown too."""
        level = samples.flatten(1).square().mean(1).sqrt().clamp(min=1e-12)
        levelled = samples / level.view(-1, 1, 1, 1)
        return normalize(self.last(self.layers(torch.cat([levelled, levelled.abs()], 1))))


class Towers(nn.Module):
    """One tower for encodings, one for images, and how sharply they tell pairs apart."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.encodings = Tower(shape)
        self.images = deepcopy(self.encodings)  # alike at first: what is alike is near already
        self.sharpness = nn.Parameter(torch.tensor(2.5))

    def logits(self, encodings: Tensor, images: Tensor) -> Tensor:
        """[n, m]."""
        sharp = self.sharpness.exp().clamp(max=100)
        logits: Tensor = sharp * (self.encodings(encodings) @ self.images(images).T)
        return logits

    @torch.no_grad()
    def scores(self, encodings: Tensor, images: Tensor) -> Tensor:
        """[n, m] cosines, block by block; in evaluation mode."""
        self.eval()
        places = torch.cat([self.images(block) for block in images.split(_BLOCK)])
        return torch.cat([self.encodings(block) @ places.T for block in encodings.split(_BLOCK)])

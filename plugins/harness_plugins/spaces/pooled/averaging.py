"""Maps averaged over positions."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import AssetFolder
from harness_plugins.spaces.imagenet.networks import ResNet50Space


class PooledResNet50(ResNet50Space):
    """[b, 2048, 1, 1] float32: a space's samples are maps, and these have one position."""

    @torch.no_grad()
    def embed(self, images: Tensor, assets: AssetFolder) -> Tensor:
        """Images [b, 1 or 3, h, w] in [0,1] to features; their maps are those of `resnet50`."""
        return pooled(super().embed(images, assets))


def pooled(maps: Tensor) -> Tensor:
    """[b, c, 1, 1] float32 of maps [b, c, h, w]."""
    return maps.float().mean((2, 3), keepdim=True)

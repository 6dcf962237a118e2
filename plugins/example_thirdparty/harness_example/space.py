"""A space that needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import avg_pool2d, pad

from harness.api import AssetFolder, Space
from harness_example.plugin import CornersConfig

if TYPE_CHECKING:
    from torch import Tensor


class Corners(Space[CornersConfig]):
    """Where brightness changes; the brightness itself is lost."""

    def embed(self, images: Tensor, assets: AssetFolder) -> Tensor:
        """[b, c, h, w] to [b, 2c, h/side, w/side]."""
        patches = avg_pool2d(images, self.config.side)
        right = patches - pad(patches, (0, 1, 0, 0))[..., 1:]
        below = patches - pad(patches, (0, 0, 0, 1))[..., 1:, :]
        return torch.cat([right, below], 1)

"""The network of the `convnet6` victim."""

from __future__ import annotations

from torch import nn

from harness.api import Victim
from harness_plugins.victims.convnet6 import ConvNet6Config
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.plain_convolutions import plain_convolutions

STRIDES = (1, 2, 1, 2, 1)


class ConvNet6(Victim[ConvNet6Config]):
    """conv1 to conv5 (the second and the fourth halve the image), flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        image = require_image("convnet6", shape)
        w = self.config.width
        widths = (w, 2 * w, 2 * w, 2 * w, 2 * w)
        return plain_convolutions(
            image, classes, widths=widths, strides=STRIDES, kernel=3, act=nn.ReLU
        )

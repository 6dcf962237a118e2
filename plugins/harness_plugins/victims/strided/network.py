"""The network of the `strided` victim."""

from __future__ import annotations

from torch import nn

from harness.api import Victim
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.plain_convolutions import plain_convolutions
from harness_plugins.victims.strided import StridedConfig

STRIDES = (1, 2, 2, 2)


class Strided(Victim[StridedConfig]):
    """conv1 to conv4 (the last three halve the image), flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        image = require_image("strided", shape)
        w = self.config.width
        widths = (w, 2 * w, 2 * w, 4 * w)
        return plain_convolutions(
            image, classes, widths=widths, strides=STRIDES, kernel=3, act=nn.ReLU
        )

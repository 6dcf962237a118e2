"""The network of the `cnn` victim."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from harness.api import Victim
from harness_plugins.victims.cnn import CnnConfig
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.normalisation import Norm, normalisation


class Cnn(Victim[CnnConfig]):
    """conv1, conv2 (each halves the image), flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        channels, *sides = require_image("cnn", shape)
        width = self.config.width
        quarter = math.prod(math.ceil(side / 4) for side in sides)
        return nn.Sequential(
            OrderedDict(
                conv1=_block(channels, width, self.config.norm),
                conv2=_block(width, 2 * width, self.config.norm),
                flatten=nn.Flatten(),
                head=nn.Linear(2 * width * quarter, classes),
            )
        )


def _block(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            norm=normalisation(norm, outputs),
            act=nn.ReLU(),
        )
    )

"""The network of the `lenet-sigmoid` victim."""

from __future__ import annotations

from torch import nn

from harness.api import Victim
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.lenet_sigmoid import LeNetSigmoidConfig
from harness_plugins.victims.plain_convolutions import plain_convolutions

WIDTHS = (12, 12, 12)
STRIDES = (2, 2, 1)


class LeNetSigmoid(Victim[LeNetSigmoidConfig]):
    """conv1, conv2, conv3, flatten, head; everything in them from U(-spread, spread)."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images [c,h,w] of any size."""
        image = require_image("lenet-sigmoid", shape)
        model = plain_convolutions(
            image, classes, widths=WIDTHS, strides=STRIDES, kernel=5, act=nn.Sigmoid
        )
        spread = self.config.spread
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -spread, spread)
        return model

"""The network of the `lenet5` victim."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from harness.api import Victim
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.lenet5 import LeNet5Config


class LeNet5(Victim[LeNet5Config]):
    """conv1, conv2, flatten, fc1, fc2, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images [c,h,w] of at least 4x4 pixels."""
        channels, height, width = require_image("lenet5", shape, smallest=4)
        first, second = _paddings(min(height, width))
        features = 16 * _side(height, first, second) * _side(width, first, second)
        return nn.Sequential(
            OrderedDict(
                conv1=_convolution(channels, 6, first),
                conv2=_convolution(6, 16, second),
                flatten=nn.Flatten(),
                fc1=_linear(features, 120),
                fc2=_linear(120, 84),
                head=nn.Linear(84, classes),
            )
        )


def _paddings(side: int) -> tuple[int, int]:
    """LeNet-5 was drawn for 32 px: pad what is smaller, and the second convolution below 12 px."""
    return (2 if side < 32 else 0), (2 if side < 12 else 0)


def _side(pixels: int, *paddings: int) -> int:
    """The side that is left after a 5x5 convolution and a halving for each padding."""
    for padding in paddings:
        pixels = (pixels + 2 * padding - 4) // 2
    return pixels


def _convolution(inputs: int, outputs: int, padding: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 5, padding=padding)
    return nn.Sequential(OrderedDict(conv=conv, act=nn.ReLU(), pool=nn.MaxPool2d(2)))


def _linear(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(linear=nn.Linear(inputs, outputs), act=nn.ReLU()))

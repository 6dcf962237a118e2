"""The network of the `resnet18` victim."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from harness.api import Victim
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.normalisation import Norm, normalisation
from harness_plugins.victims.resnet18 import ResNet18Config

LARGEST_SMALL_IMAGE = 64
"""Pixels a side up to which the stem keeps the resolution."""


class ResNet18(Victim[ResNet18Config]):
    """stem, layer1 to layer4, pool, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        channels, height, width = require_image("resnet18", shape)
        w, norm = self.config.width, self.config.norm
        small = max(height, width) <= LARGEST_SMALL_IMAGE
        return nn.Sequential(
            OrderedDict(
                stem=_small_stem(channels, w, norm) if small else _large_stem(channels, w, norm),
                layer1=_layer(w, w, stride=1, norm=norm),
                layer2=_layer(w, 2 * w, stride=2, norm=norm),
                layer3=_layer(2 * w, 4 * w, stride=2, norm=norm),
                layer4=_layer(4 * w, 8 * w, stride=2, norm=norm),
                pool=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                head=nn.Linear(8 * w, classes),
            )
        )


class Residual(nn.Module):
    """ReLU(F(x) + x) with two 3x3 convolutions F; x is projected where its shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride, norm)
        self.act = nn.ReLU()
        self.second = _convolution(outputs, outputs, 3, 1, norm)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Images [b,inputs,h,w] to [b,outputs,h/stride,w/stride]."""
        residual: Tensor = self.second(self.act(self.first(x)))
        activated: Tensor = self.act(residual + self.shortcut(x))
        return activated


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, norm: Norm) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(OrderedDict(conv=conv, norm=normalisation(norm, outputs)))


def _small_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, width, 3, 1, norm), nn.ReLU())


def _large_stem(channels: int, width: int, norm: Norm) -> nn.Sequential:
    convolution = _convolution(channels, width, 7, 2, norm)
    return nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def _layer(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        Residual(inputs, outputs, stride, norm), Residual(outputs, outputs, 1, norm)
    )

"""The network of the `vgg16` victim."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn

from harness.api import Victim
from harness_plugins.victims.image_shape import require_image
from harness_plugins.victims.normalisation import Norm, normalisation
from harness_plugins.victims.vgg16 import Vgg16Config

BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))
"""Of each block: its channels in multiples of the width, and its convolutions."""

SMALLEST = 17
"""Pixels a side from which the last block sees more than one pixel.

Of a single pixel of a single image, BatchNorm would have no variance to compute.
"""


class Vgg16(Victim[Vgg16Config]):
    """block1 to block5 (each halves the image, rounding up), pool, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images [c,h,w] of at least 17x17 pixels."""
        channels, _, _ = require_image("vgg16", shape, SMALLEST)
        widths = [self.config.width * multiple for multiple, _ in BLOCKS]
        depths = [depth for _, depth in BLOCKS]
        blocks = {
            f"block{k}": _block(inputs, outputs, depth, self.config.norm)
            for k, ((inputs, outputs), depth) in enumerate(
                zip(pairwise((channels, *widths)), depths, strict=True), start=1
            )
        }
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(OrderedDict(**blocks, pool=pool, head=nn.Linear(widths[-1], classes)))


def _block(inputs: int, outputs: int, depth: int, norm: Norm) -> nn.Sequential:
    """Convolutions conv1 to conv`depth`, then the larger of each 2x2 pixels."""
    sizes = pairwise((inputs, *[outputs] * depth))
    convolutions = {f"conv{k}": _convolution(*pair, norm) for k, pair in enumerate(sizes, start=1)}
    return nn.Sequential(OrderedDict(**convolutions, pool=nn.MaxPool2d(2, ceil_mode=True)))


def _convolution(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(OrderedDict(conv=conv, norm=normalisation(norm, outputs), act=nn.ReLU()))

"""Networks of convolutions without normalisation or pooling, whose gradients say much."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def plain_convolutions(
    shape: tuple[int, int, int],
    classes: int,
    *,
    widths: Sequence[int],
    strides: Sequence[int],
    kernel: int,
    act: type[nn.Module],
) -> nn.Sequential:
    """conv1 to convN, flatten, head, for images [c,h,w].

    Each convolution is kernel × kernel (odd), padded so that stride s leaves ⌈side/s⌉ pixels,
    and is followed by `act`. Weights are as PyTorch draws them.
    """
    channels, *sides = shape
    convolutions = {
        f"conv{k}": _block(*channels_of, stride, kernel, act)
        for k, (channels_of, stride) in enumerate(
            zip(pairwise((channels, *widths)), strides, strict=True), start=1
        )
    }
    features = widths[-1] * math.prod(_left(side, strides) for side in sides)
    head = nn.Linear(features, classes)
    return nn.Sequential(OrderedDict(**convolutions, flatten=nn.Flatten(), head=head))


def _block(
    inputs: int, outputs: int, stride: int, kernel: int, act: type[nn.Module]
) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
    return nn.Sequential(OrderedDict(conv=conv, act=act()))


def _left(side: int, strides: Sequence[int]) -> int:
    for stride in strides:
        side = math.ceil(side / stride)
    return side

"""A chain of convolutions, the first half of networks that embed."""

from __future__ import annotations

from torch import nn


def convolutions(
    shape: tuple[int, ...], widths: tuple[tuple[int, int], ...]
) -> tuple[nn.Sequential, int]:
    """From samples of `shape` (c, h, w) to flat maps, and how many values those have.

    `widths` are the channels and the stride of each convolution of three by three.
    """
    layers: list[nn.Module] = []
    channels, height, width = shape
    for outputs, stride in widths:
        layers += [
            nn.Conv2d(channels, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
        channels, height, width = outputs, -(-height // stride), -(-width // stride)
    return nn.Sequential(*layers, nn.Flatten()), channels * height * width

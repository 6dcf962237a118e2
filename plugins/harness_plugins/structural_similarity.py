"""SSIM for attacks: as a loss, and of all pairs of images at once.

The judge's SSIM is scikit-image's own, which knows neither gradients nor pairs. A test holds both
forms to its values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import conv2d

if TYPE_CHECKING:
    from torch import Tensor

SIGMA, RADIUS = 1.5, 5
WINDOW = 2 * RADIUS + 1
_C1, _C2 = 0.01**2, 0.03**2  # where valid values span 1
_PAIRS = 2**17  # at a time


def mean_ssim(images: Tensor, truth: Tensor) -> Tensor:
    """[n] SSIM of images with truth, both [n, c, h, w] in units in which valid values span 1.

    The mean over channels and over all windows that lie inside the image. Differentiable.
    """
    rows, columns = _taps(images)
    planes = torch.stack([images, truth, images * images, truth * truth, images * truth])
    flat = planes.reshape(-1, 1, *planes.shape[-2:])
    smooth = conv2d(conv2d(flat, rows.view(1, 1, -1, 1)), columns.view(1, 1, 1, -1))
    x, y, xx, yy, xy = smooth.view(*planes.shape[:-2], *smooth.shape[-2:])
    return _equation_13(x, y, xx - x * x, yy - y * y, xy - x * y).flatten(1).mean(1)


def ssim_of_pairs(rows: Tensor, others: Tensor, stride: int) -> Iterator[Tensor]:
    """Blocks [b, m] of the SSIM of rows [r, c, h, w] with others [m, c, h, w].

    Valid values span 1. The mean over channels and over every `stride`-th window in both
    directions. Inside a window a covariance is an inner product, which makes all pairs a product
    of matrices.
    """
    weights = torch.outer(*_taps(rows)).flatten()
    for block in rows.split(max(1, _PAIRS // len(others))):
        total, count = block.new_zeros(len(block), len(others)), 0
        for one, other in zip(_windows(block, stride), _windows(others, stride), strict=True):
            total += _of_window(one, other, weights)
            count += 1
        yield total / count


def _windows(images: Tensor, stride: int) -> Iterator[Tensor]:
    """[n, p] pixels of each window of images [n, c, h, w]."""
    height, width = map(len, _taps(images))
    cut = images.unfold(2, height, stride).unfold(3, width, stride)  # a view
    for place in product(*map(range, cut.shape[1:4])):
        yield cut[:, *place].flatten(1)


def _of_window(one: Tensor, other: Tensor, weights: Tensor) -> Tensor:
    """[r, m] SSIM in one window, of pixels [r, p] with pixels [m, p] that count by weights [p]."""
    x, y = one @ weights, other @ weights
    from_x, from_y = one - x.unsqueeze(1), other - y.unsqueeze(1)
    vx, vy = (each.square() @ weights for each in (from_x, from_y))
    common = (from_x * weights) @ from_y.T
    return _equation_13(x.unsqueeze(1), y, vx.unsqueeze(1), vy, common)


def _equation_13(x: Tensor, y: Tensor, vx: Tensor, vy: Tensor, vxy: Tensor) -> Tensor:
    """Wang et al. 2004, from means, variances and covariance."""
    likeness = (2 * x * y + _C1) * (2 * vxy + _C2)
    return likeness / ((x * x + (y * y + _C1)) * (vx + (vy + _C2)))


def _taps(images: Tensor) -> tuple[Tensor, Tensor]:
    """Gaussian weights down and across, 11 of them, or as many odd ones as a short side holds."""
    found = []
    for side in images.shape[-2:]:
        radius = min(RADIUS, (side - 1) // 2)
        weights = [math.exp(-0.5 * (i / SIGMA) ** 2) for i in range(-radius, radius + 1)]
        found.append(images.new_tensor([weight / sum(weights) for weight in weights]))
    return found[0], found[1]

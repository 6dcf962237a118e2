"""The loss of fusion and denoiser: .3 L1 - .7 SSIM (Luo et al.)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import conv2d

if TYPE_CHECKING:
    from torch import Tensor

_ABSOLUTE, _STRUCTURE = 0.3, 0.7
_SIGMA, _RADIUS = 1.5, 5
_C1, _C2 = 0.01**2, 0.03**2


def objective(images: Tensor, truth: Tensor) -> Tensor:
    """[] for images [n, c, h, w] in the units in which valid ones lie in [0,1]."""
    absolute = (images - truth).abs().mean()
    loss: Tensor = _ABSOLUTE * absolute - _STRUCTURE * ssim(images, truth)
    return loss


def ssim(images: Tensor, truth: Tensor) -> Tensor:
    """[] mean SSIM (Wang et al. 2004, equation 13) over windows inside the images.

    Of images smaller than a window, one window is as large as the image.
    """
    rows, columns = (_taps(side).to(images) for side in images.shape[-2:])
    planes = [images, truth, images * images, truth * truth, images * truth]
    x, y, xx, yy, xy = _smooth(torch.stack(planes), rows, columns)
    likeness = (2 * x * y + _C1) * (2 * (xy - x * y) + _C2)
    each: Tensor = likeness / ((x * x + y * y + _C1) * (xx - x * x + yy - y * y + _C2))
    return each.mean()


def _taps(side: int) -> Tensor:
    """Gaussian weights that sum to 1: 11, or as many as a side holds."""
    radius = min(_RADIUS, (side - 1) // 2)
    weights = [math.exp(-0.5 * (i / _SIGMA) ** 2) for i in range(-radius, radius + 1)]
    taps = torch.tensor(weights)
    return taps / taps.sum()


def _smooth(planes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Planes [..., h, w] under the separable window, [..., h', w']."""
    flat = planes.reshape(-1, 1, *planes.shape[-2:])
    found = conv2d(conv2d(flat, rows.view(1, 1, -1, 1)), columns.view(1, 1, 1, -1))
    return found.view(*planes.shape[:-2], *found.shape[-2:])

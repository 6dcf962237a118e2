"""SSIM of a batch, equal to scikit-image's value for each image.

scikit-image filters with a padded Gaussian of 11 taps and then drops a border of 5 pixels from
the mean, so that only windows lying inside the image count: the convolutions here are "valid".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.api import Metric

SIGMA = 1.5
RADIUS = 5  # int(3.5·σ + ½), scikit-image's truncation
WINDOW = 2 * RADIUS + 1
C1, C2 = 0.01**2, 0.03**2
CHUNK_VALUES = 2**21
"""Values of one chunk of images; twenty-odd float64 arrays of that size are alive at once."""


def _taps() -> list[float]:
    """The Gaussian's 11 weights, which sum to 1."""
    weights = [math.exp(-0.5 * (i / SIGMA) ** 2) for i in range(-RADIUS, RADIUS + 1)]
    return [weight / sum(weights) for weight in weights]


def _smooth_rows(images: Tensor) -> Tensor:
    """[..., w] filtered along the last axis, [..., w-10]."""
    width = images.shape[-1] - WINDOW + 1
    result = torch.zeros_like(images[..., :width])
    for shift, weight in enumerate(_taps()):
        result.add_(images[..., shift : shift + width], alpha=weight)
    return result


def _smooth(images: Tensor) -> Tensor:
    """[..., h, w] under the separable Gaussian window, [..., h-10, w-10]."""
    return _smooth_rows(_smooth_rows(images).mT).mT


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    """[n] mean SSIM (Wang et al. 2004, eq. 13) over windows and channels."""
    ux, uy = _smooth(x), _smooth(y)
    vx, vy = _smooth(x * x) - ux * ux, _smooth(y * y) - uy * uy
    vxy = _smooth(x * y) - ux * uy
    likeness = (2 * ux * uy + C1) * (2 * vxy + C2)
    return (likeness / ((ux * ux + uy * uy + C1) * (vx + vy + C2))).flatten(1).mean(1)


class Ssim(Metric):
    """Structural similarity.

    In float64 on purpose: the variances are small differences of large numbers. Devices that
    have no float64 hand the work to the CPU.
    """

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """Images must hold one window."""
        height, width = shape[-2:]
        if min(height, width) >= WINDOW:
            return None
        return f"images of {height}×{width} px are smaller than SSIM's window of {WINDOW} px"

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] in [-1,1]."""
        device = "cpu" if truth.device.type == "mps" else truth.device
        chunk = max(1, CHUNK_VALUES // truth[0].numel())
        pairs = zip(truth.split(chunk), images.split(chunk), strict=True)
        scores = [_ssim(x.to(device).double(), y.to(device).double()) for x, y in pairs]
        return torch.cat(scores).cpu()

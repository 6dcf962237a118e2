"""SSIM of every encoding with every candidate: a matrix product for each window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor

_SIGMA, _RADIUS = 1.5, 5
WINDOW = 2 * _RADIUS + 1
_C1, _C2 = 0.01**2, 0.03**2
_PAIRS = 2**18


def ssim_matrix(rows: Tensor, candidates: Tensor, stride: int) -> Iterator[Tensor]:
    """Blocks [b, m] of mean SSIM of rows [r, c, h, w] with candidates [m, c, h, w], in [0,1].

    Wang et al. 2004, equation 13, over windows that lie inside the image, every `stride`-th in
    both directions. NotApplicable for images smaller than one window.
    """
    if min(rows.shape[-2:]) < WINDOW:
        size = "×".join(map(str, rows.shape[-2:]))
        raise NotApplicable(
            f"images of {size} px are smaller than SSIM's window of {WINDOW} px; use by=learned."
        )
    kernel = _kernel().to(rows)
    for block in rows.split(max(1, _PAIRS // len(candidates))):
        yield _mean_ssim(block, candidates, kernel, stride)


def _kernel() -> Tensor:
    """[121] Gaussian weights that sum to 1."""
    taps = torch.tensor([math.exp(-0.5 * (i / _SIGMA) ** 2) for i in range(-_RADIUS, _RADIUS + 1)])
    taps /= taps.sum()
    return torch.outer(taps, taps).flatten()


def _mean_ssim(rows: Tensor, candidates: Tensor, kernel: Tensor, stride: int) -> Tensor:
    total, count = rows.new_zeros(len(rows), len(candidates)), 0
    channels, height, width = rows.shape[1:]
    for channel in range(channels):
        for y in range(0, height - WINDOW + 1, stride):
            for x in range(0, width - WINDOW + 1, stride):
                place = (slice(None), channel, slice(y, y + WINDOW), slice(x, x + WINDOW))
                total += _of_window(
                    _View.of(rows[place], kernel), _View.of(candidates[place], kernel)
                )
                count += 1
    return total.div_(count)


@dataclass(frozen=True)
class _View:
    """One window of n images: `mean` [n], `variance` [n], `rest` [n, 121] about the mean."""

    mean: Tensor
    variance: Tensor
    rest: Tensor
    weighted: Tensor

    @classmethod
    def of(cls, window: Tensor, kernel: Tensor) -> _View:
        values = window.flatten(1)
        mean = values @ kernel
        rest = values - mean.unsqueeze(1)
        weighted = rest * kernel
        return cls(mean, (weighted * rest).sum(1), rest, weighted)


def _of_window(x: _View, y: _View) -> Tensor:
    """[r, m] SSIM of one window."""
    both = torch.outer(x.mean, y.mean).mul_(2).add_(_C1)
    both *= (x.weighted @ y.rest.T).mul_(2).add_(_C2)
    both /= (x.mean.square() + _C1).unsqueeze(1) + y.mean.square()
    both /= (x.variance + _C2).unsqueeze(1) + y.variance
    return both

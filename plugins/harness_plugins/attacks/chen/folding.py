"""Correlations of Gaussians from those of their absolute values.

For standard normal u, v of correlation r, E|uv| = (2/pi)(sqrt(1 - r^2) + r asin r): even in r and
rising in |r|. Less the product of the means, 2/pi, and over the variance 1 - 2/pi, it is the
correlation of |u| and |v|, from 0 to 1.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_STEPS = 4096  # of the table that the inverse starts from


def folded(correlation: Tensor) -> Tensor:
    """The correlation of |u| and |v|, in [0,1], of the correlation of u and v, in [-1,1]."""
    arc = (1 - correlation.square()).sqrt() + correlation * correlation.asin()
    return (arc - 1) * (2 / math.pi) / (1 - 2 / math.pi)


def unfolded(correlation: Tensor) -> Tensor:
    """|r| in [0,1] of correlations of absolute values; below 0 counts as 0, above 1 as 1.

    A table says where to start, and one step of Newton does the rest.
    """
    told = correlation.clamp(0, 1)
    table = _table().to(told)
    above = torch.searchsorted(table, told.contiguous()).clamp(1, _STEPS)
    low, high = table[above - 1], table[above]
    # Between two entries the square is nearly straight, as the curve begins as one of r^2.
    below_square, above_square = ((above - step).to(told).square() for step in (1, 0))
    share = (told - low) / (high - low)
    start = (below_square + share * (above_square - below_square)).sqrt() / _STEPS
    slope = start.clamp(max=1).asin() * (2 / math.pi) / (1 - 2 / math.pi)
    step = (folded(start.clamp(max=1)) - told) / slope.clamp(min=0.05)
    return torch.where(slope > 0.05, start - step, start).clamp(0, 1)


@cache
def _table() -> Tensor:
    """[steps + 1] float64 of `folded`, at even steps from 0 to 1."""
    return folded(torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64))

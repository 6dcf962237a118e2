"""Two-sample Kolmogorov-Smirnov tests in batches, with exact p-values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def largest_gap(first: Tensor, second: Tensor) -> Tensor:
    """M · D [...] int64, D the largest distance of empirical distributions; samples [..., m]."""
    values, order = torch.cat([first, second], -1).sort(-1)
    steps = torch.where(order < first.shape[-1], 1, -1)
    ends = torch.ones_like(values, dtype=torch.bool)
    ends[..., :-1] = values[..., 1:] != values[..., :-1]  # equal values step together
    return (steps.cumsum(-1).abs() * ends).amax(-1)


def equal_sizes(gaps: Tensor, m: int) -> Tensor:
    """P(m · D >= gap), float64, for two samples of m: exact for a continuous law.

    Gnedenko and Korolyuk, 1951. Where values can be equal, it is an upper bound.
    """
    tail = torch.tensor([_tail(h, m) for h in range(m + 1)], dtype=torch.float64)
    return tail[gaps.cpu()]


def _tail(h: int, m: int) -> float:
    """2 Σ_{j>=1} (-1)^{j+1} C(2m, m + jh) / C(2m, m)."""
    if h == 0:
        return 1.0
    steps = torch.arange(h, m + 1, h, dtype=torch.float64)
    size = torch.tensor(float(m), dtype=torch.float64)
    logs = 2 * (size + 1).lgamma() - (size + steps + 1).lgamma() - (size - steps + 1).lgamma()
    terms = logs.exp()
    return min(1.0, max(0.0, 2 * float(terms[0::2].sum() - terms[1::2].sum())))


def one_against_others(values: Tensor) -> Tensor:
    """P [..., images, m] float64 of each value, tested alone against those of other images.

    `values` [..., images, m]. A sample of one has m' · D = max(below, m' − at most), m' values
    on the other side; under one law its rank is uniform on 0..m'.
    """
    images, m = values.shape[-2:]
    pool = values.flatten(-2)
    below = _rank(pool, pool, False).view_as(values) - _rank(values, values, False)
    within = _rank(pool, pool, True).view_as(values) - _rank(values, values, True)
    others = (images - 1) * m
    gap = torch.maximum(below, others - within)
    return (2 * (others - gap + 1).cpu().double() / (others + 1)).clamp(max=1)


def _rank(among: Tensor, values: Tensor, right: bool) -> Tensor:
    ordered = among.sort(-1).values
    return torch.searchsorted(ordered, values.contiguous(), right=right)

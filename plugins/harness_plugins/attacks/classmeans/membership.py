"""Which class the primary image of a row is of, by its soft label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import one_hot

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 8
_NUMBERS = 1 << 22


def own_class(labels: Tensor, weights: Tensor | None) -> Tensor:
    """[n, classes] probabilities, of soft labels [n, classes] and weights [n, k] if granted.

    A class's entry in the label is the sum of the weights of its images. The own image's class
    is the one whose entry is its weight alone or with some of the others': of all such sums,
    the nearest, among classes that are in the label at all. Without weights a class is as
    likely as its entry is large.
    """
    if weights is None:
        total = labels.sum(1, keepdim=True)
        return labels / total.clamp(min=torch.finfo(labels.dtype).tiny)
    sums = weights[:, :1] + weights[:, 1:] @ _subsets(weights.shape[1] - 1).to(weights).T
    size = max(1, _NUMBERS // (labels.shape[1] * sums.shape[1]))
    parts = zip(torch.split(labels, size), torch.split(sums, size), strict=True)
    best = torch.cat([_nearest(part, known) for part, known in parts])
    return one_hot(best, labels.shape[1]).to(labels)


def _nearest(labels: Tensor, sums: Tensor) -> Tensor:
    misses = (labels.unsqueeze(2) - sums.unsqueeze(1)).abs().amin(2)
    return misses.masked_fill(labels <= 0, torch.inf).argmin(1)


def _subsets(others: int) -> Tensor:
    """[2^others, others] of 0 and 1; none but the empty one where there are too many."""
    if others >= _MOST:
        return torch.zeros(1, others)
    return (torch.arange(2**others).view(-1, 1) >> torch.arange(others)) & 1

"""Under how much noise each image is seen, once its partners are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def information(weights: Tensor, sources: Tensor, deviations: Tensor, images: int) -> Tensor:
    """[images] float64: 1/v, where rows show image x as N(x, v I) to whoever knows the others.

    1/v = Σ over rows i that hold x of (c_i / s_i)², c_i the sum of all weights of x in row i and
    s_i = `deviations` [rows] the deviation of a value of the row's noise. `weights` and `sources`
    [rows, k]. An image that is its own partner has all the row's weights: they add before they
    are squared. Row i less its other images is c_i x + s_i e; independent normal observations of
    one x have the precisions' sum, and their weighted mean is sufficient for x.
    """
    precision = deviations.double().square().reciprocal()
    weights = weights.double()
    told = weights.new_zeros(images)
    for column, source in zip(weights.T, sources.T, strict=True):
        # c² = Σ_j w_j Σ_l w_l [same image]: each place of x brings its weight times all of x's
        total = (weights * (sources == source.view(-1, 1))).sum(1)
        told.index_add_(0, source, column * total * precision)
    return told


def partners(sources: Tensor, targets: int, images: int) -> Tensor:
    """[targets, images] bool: who is mixed with which target in some row of `sources` [rows, k]."""
    told = torch.zeros(targets, images, dtype=torch.bool)
    for one in sources.T:
        kept = one < targets
        for other in sources.T:
            told[one[kept], other[kept]] = True
    told[torch.arange(targets), torch.arange(targets)] = False
    return told

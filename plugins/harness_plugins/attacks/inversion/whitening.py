"""Distances in units of how much a collection of vectors spreads in each direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_MOST_DIRECTIONS = 1000
# Of vectors that are all alike, in every direction: a dead network makes such features.
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Whitening:
    """(C + εI)^(-1/2) about a mean, by the r largest directions of C.

    All other directions are taken to have the same variance, the mean ν of theirs. `mean` [p];
    `directions` [p, r] orthonormal; `floor` √(ε + ν); `shrunk` [r] = 1 - floor / √(λ + ε).
    """

    mean: Tensor
    directions: Tensor
    shrunk: Tensor
    floor: Tensor

    @classmethod
    def of(cls, rows: Tensor, shrinkage: float) -> Whitening:
        """Of rows [m, p]; ε is `shrinkage` times the mean variance of a direction."""
        mean = rows.mean(0)
        centred = rows - mean
        values, directions = _principal(centred)
        variance = centred.square().mean()
        least = (shrinkage * variance).clamp(min=_LEAST_VARIANCE)
        others = max(1, centred.shape[1] - len(values))
        floor = (least + (variance * centred.shape[1] - values.sum()).clamp(min=0) / others).sqrt()
        return cls(mean, directions, 1 - floor / (values + least).sqrt(), floor)

    def apply(self, differences: Tensor) -> Tensor:
        """Differences [n, p] in whitened units."""
        along = (differences @ self.directions) * self.shrunk
        return (differences - along @ self.directions.T) / self.floor


def _principal(centred: Tensor) -> tuple[Tensor, Tensor]:
    """Variances [r] and directions [p, r] of centred rows [m, p], by the smaller Gram matrix."""
    count, size = centred.shape
    most = min(_MOST_DIRECTIONS, count, size)
    if size <= count:
        values, directions = torch.linalg.eigh(centred.T @ centred / count)
        return values[-most:].clamp(min=0), directions[:, -most:]
    values, rows = torch.linalg.eigh(centred @ centred.T / count)
    kept = values > values[-1].clamp(min=torch.finfo(values.dtype).tiny) * 1e-6
    values, rows = values[kept][-most:], rows[:, kept][:, -most:]
    return values, centred.T @ (rows / (count * values).sqrt())

"""Distances of encodings from all mixtures of two candidates, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_COLUMNS = 4096
_LEAST = 1e-12
"""Relative misfit that float64 cannot tell from none."""
_TO_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation of normal errors."""


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """[n, m] float64 of rows [n, d] and [m, d], a block of columns at a time."""
    total = torch.zeros(len(first), len(second), dtype=torch.float64, device=first.device)
    for a, b in zip(first.split(_COLUMNS, 1), second.split(_COLUMNS, 1), strict=True):
        total.addmm_(a.double(), b.double().T)
    return total


def squared_norms(rows: Tensor) -> Tensor:
    """[n] float64 of rows [n, d]."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for block in rows.split(_COLUMNS, 1):
        total += block.double().square().sum(1)
    return total


@dataclass(frozen=True)
class Shell:
    """Noise of norm `radius` on the second image of two, up to `deviation`.

    The deviation is rounding alone where the noise lies on a sphere.
    """

    radius: float
    deviation: float

    @classmethod
    def measured(cls, rows: Tensor, own: Tensor, partner: Tensor, weights: Tensor) -> Shell:
        """From encodings [n, d] of known images [n, d] with weights [n, 2]."""
        first, second = weights.double().unsqueeze(2).unbind(1)
        left = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        parts = (part.split(_COLUMNS, 1) for part in (rows, own, partner))
        for x, a, b in zip(*parts, strict=True):
            left += (x.double() - first * a.double() - second * b.double()).square().sum(1)
        norms = left.sqrt() / second.squeeze(1).clamp(min=1e-12)
        radius = norms.median()
        return cls(float(radius), float((norms - radius).abs().median()) * _TO_DEVIATION)


@dataclass(frozen=True)
class Pairs:
    """All pairs of m candidates against rows: inner products that every norm is made of.

    `energy` [r] of the rows, `products` [r, m] with the candidates, `gram` [m, m] of those;
    `weights` [r, 2].
    """

    energy: Tensor
    products: Tensor
    gram: Tensor
    weights: Tensor

    @classmethod
    def of(cls, rows: Tensor, candidates: Tensor, weights: Tensor) -> Pairs:
        """Of rows [r, d] and candidates [m, d]."""
        gram = inner_products(candidates, candidates)
        products = inner_products(rows, candidates)
        return cls(squared_norms(rows), products, gram, weights.double())

    def scores(self, rows: slice, firsts: slice, shell: Shell) -> Tensor:
        """[b, f, m] float32 of (first image, second image): -log(1 + misfit^2) / 2.

        The misfit of the noise's norm is in units of its deviation. Pairs of one row are ranked
        by it alone; misfits within the deviation count alike when rows are put together.
        """
        second = self.weights[rows, 1].view(-1, 1, 1)
        norms = self._norms(rows, firsts).sub_(second * shell.radius)
        least = _LEAST * self.energy[rows].sqrt().view(-1, 1, 1)
        unit = torch.maximum(second * shell.deviation, least).clamp(min=1e-30)
        # From here on float32 will do, and takes half as long.
        return norms.mul_(1 / unit).float().square_().log1p_().mul_(-0.5)

    def _norms(self, rows: slice, firsts: slice) -> Tensor:
        """[b, f, m] float64: ||x~ - w a - (1 - w) b||."""
        first, second = self.weights[rows, :, None].unbind(1)
        products, size = self.products[rows], self.gram.diagonal()
        left = first * (first * size[firsts] - 2 * products[:, firsts])
        left += self.energy[rows].view(-1, 1)
        right = second * (second * size - 2 * products)
        squared = left.unsqueeze(2) + right.unsqueeze(1)
        squared.addcmul_(self.gram[firsts], (2 * first * second).unsqueeze(2))
        return squared.clamp_(min=0).sqrt_()

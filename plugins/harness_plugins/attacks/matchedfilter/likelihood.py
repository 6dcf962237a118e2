"""Log-likelihood ratios of candidates, for rows of known weights and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.matchedfilter.propagation import Evidence, Graph

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.law import NoiseLaw
    from harness_plugins.mixtures.prior import GaussianPrior

_BLOCK = 512
_COLUMNS = 256
_EXACT = 1e-6
"""Relative error of coordinates that were worked out in float32."""


@dataclass(frozen=True)
class Axes:
    """Coordinates in which the prior's covariance is diagonal, with `variances` [q].

    Where its basis does not span everything, what is outside follows as d further values: they
    depend on each other, but have one variance, and inner products are all that is taken.
    """

    prior: GaussianPrior

    @cached_property
    def variances(self) -> Tensor:
        """[q], or [q + d]."""
        if self.prior.complete:
            return self.prior.variances
        return torch.cat([self.prior.variances, self.prior.rest.expand(len(self.prior.basis))])

    def of(self, centred: Tensor) -> Tensor:
        """[n, q] or [n, q + d] of centred rows [n, d]."""
        inside = self.prior.coordinates(centred)
        if self.prior.complete:
            return inside
        outside = torch.addmm(centred, inside, self.prior.basis.T, alpha=-1)
        return torch.cat([inside, outside], 1)


@dataclass(frozen=True)
class Filter:
    """Rows [r, d] of `weights` [r, k] under a law, seen along the axes of the prior."""

    axes: Axes
    law: NoiseLaw
    weights: Tensor
    rows: Tensor

    @cached_property
    def scaled(self) -> Tensor:
        """[r, k] weights as encodings have them."""
        return self.weights * self.law.gain

    @cached_property
    def noise(self) -> Tensor:
        """[r, 1] power of the noise, no less than what float32 coordinates are off by."""
        least = _EXACT**2 * float(self.rows.square().mean()) * self.rows.shape[1]
        return self.law.power(self.weights).clamp(min=least).view(-1, 1).to(self.rows)

    def coordinates(self, chosen: slice) -> Tensor:
        """[b, q] of some rows, about what their weights make of the mean."""
        total = self.scaled[chosen].sum(1, keepdim=True)
        return self.axes.of(self.rows[chosen] - total * self.axes.prior.mean)

    def of_places(self, candidates: Tensor) -> Tensor:
        """[r, m] log of the mean likelihood ratio over the k places; other images unknown.

        `candidates` [m, q] are coordinates.
        """
        starts = range(0, len(self.rows), _BLOCK)
        return torch.cat([self._mean(slice(at, at + _BLOCK), candidates) for at in starts])

    def _mean(self, chosen: slice, candidates: Tensor) -> Tensor:
        rows, weights = self.coordinates(chosen), self.scaled[chosen]
        energy = weights.square().sum(1, keepdim=True)
        found = []
        for own in weights.split(1, 1):
            gain = own / ((energy - own.square()) * self.axes.variances + self.noise[chosen])
            found.append(Evidence(rows * gain, own * gain).scores(candidates))
        return torch.stack(found).logsumexp(0) - math.log(len(found))

    def of_images(self, candidates: Tensor, sources: Tensor, count: int, sweeps: int) -> Tensor:
        """[count, m] of each of `count` images, from all rows that hold it.

        `sources` [r, k]: which image is in which place; those from `count` on are public.
        """
        blocks = [self.coordinates(slice(at, at + _BLOCK)) for at in range(0, len(sources), _BLOCK)]
        rows = torch.cat(blocks)
        total = candidates.new_zeros(count, len(candidates))
        for at in range(0, rows.shape[1], _COLUMNS):
            part = slice(at, at + _COLUMNS)
            prior = self.axes.variances[part]
            graph = Graph(rows[:, part], self.scaled, self.noise, sources, count, prior)
            total += graph.evidence(sweeps).scores(candidates[:, part])
        return total

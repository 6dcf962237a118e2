"""Gaussian belief propagation between rows that share images.

A row says of an image in it what it can, given what it has heard of its other images from the
rows that hold those. Without hearing, another image is a stranger with the prior's variance;
a row of which all but one image is known says of that one all that the noise leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Evidence:
    """What rows say of a candidate with coordinates a: `linear` · a - `square` · a² / 2.

    Both [n, q]. Independent pieces of evidence on one image add up.
    """

    linear: Tensor
    square: Tensor

    def scores(self, coordinates: Tensor) -> Tensor:
        """[n, m] log-likelihood ratios of candidates' coordinates [m, q]."""
        return torch.addmm(
            self.linear @ coordinates.T, self.square, coordinates.square().T, alpha=-0.5
        )


@dataclass(frozen=True)
class Graph:
    """Rows [r, B] of `weights` [r, k] and `noise` [r, 1], in B independent coordinates.

    `sources` [r, k] is which of `count` images each weight is of, or a stranger from there on;
    images have mean zero and `variances` [B].
    """

    rows: Tensor
    weights: Tensor
    noise: Tensor
    sources: Tensor
    count: int
    variances: Tensor

    def evidence(self, sweeps: int) -> Evidence:
        """[count, B] all that is said of each image, after rows have heard `sweeps` times."""
        said = self._say([self._strangers()] * self.weights.shape[1])
        for _ in range(sweeps):
            total = self._total(said)
            said = self._say([self._heard(total, said[i], i) for i in range(len(said))])
        return self._total(said)

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """Mean and variance [r, B] of images that nothing is known of."""
        return torch.zeros_like(self.rows), self.variances.expand_as(self.rows)

    def _say(self, known: list[tuple[Tensor, Tensor]]) -> list[Evidence]:
        """By place: what each row says of it, given mean and variance [r, B] of every place."""
        return [self._of_place(place, known) for place in range(len(known))]

    def _of_place(self, place: int, known: list[tuple[Tensor, Tensor]]) -> Evidence:
        left, power = self.rows.clone(), self.noise.expand_as(self.rows).clone()
        for other, (mean, variance) in enumerate(known):
            if other != place:
                weight = self.weights[:, other : other + 1]
                left -= weight * mean
                power += weight.square() * variance
        gain = self.weights[:, place : place + 1] / power
        return Evidence(left * gain, self.weights[:, place : place + 1] * gain)

    def _total(self, said: list[Evidence]) -> Evidence:
        linear, square = (self.rows.new_zeros(self.count, self.rows.shape[1]) for _ in range(2))
        for evidence, image in zip(said, self.sources.T, strict=True):
            private = image < self.count
            linear.index_add_(0, image[private], evidence.linear[private])
            square.index_add_(0, image[private], evidence.square[private])
        return Evidence(linear, square)

    def _heard(self, total: Evidence, own: Evidence, place: int) -> tuple[Tensor, Tensor]:
        """Mean and variance [r, B] of the images in a place, from all rows but the row itself."""
        image = self.sources[:, place]
        known = (image < self.count).unsqueeze(1)
        at = image.clamp(max=self.count - 1)
        nothing = torch.zeros_like(own.linear)
        linear = torch.where(known, total.linear[at] - own.linear, nothing)
        square = torch.where(known, total.square[at] - own.square, nothing).clamp(min=0)
        variance = (square + 1 / self.variances).reciprocal()
        return linear * variance, variance

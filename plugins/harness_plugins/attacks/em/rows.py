"""Rows as mixtures of two images of known classes: what labels and energies tell of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.clusters.labels import PRESENT
from harness_plugins.mixtures.law import exercise, law_of

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.mixtures.law import NoiseLaw
    from harness_plugins.mixtures.prior import GaussianPrior
    from harness_plugins.mixtures.subspace import Subspace

_GRID, _BLOCK = 2001, 2048
_EXACT = 1e-3
"""Of an image's variance a value: less noise than this is no noise to who compares pairs."""


@dataclass(frozen=True)
class Rows:
    """Rows about their class means, in the leading coordinates.

    `values` [m, q]; the `first` image has a class [m] and a `weight` [m], the `second` the rest;
    `doubt` [] is the variance of those weights that no label names, `sure` [m] says which one
    does. `noise` [m] is its power a value.
    """

    values: Tensor
    first: Tensor
    second: Tensor
    weight: Tensor
    sure: Tensor
    noise: Tensor
    doubt: float


@dataclass(frozen=True)
class _Energies:
    """Weights by the energy of a row outside the `count` leading coordinates.

    Noise fills all coordinates alike and images hardly any but the leading ones, so what is
    outside tells how much noise there is, and with it the weight of the image that has none.
    """

    law: NoiseLaw
    basis: Tensor
    mean: Tensor
    rest: float
    least: float
    most: float

    def parted(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates [m, q] of rows [m, d], and the energy [m] outside."""
        inside = rows @ self.basis - self.mean @ self.basis
        energy = torch.cat([(b - self.mean).square().sum(1) for b in rows.split(_BLOCK)])
        return inside, (energy - inside.square().sum(1)).clamp(min=0)

    def weights(self, outside: Tensor) -> Tensor:
        """[m] of the first image, by the energy outside."""
        grid = torch.linspace(self.least, self.most, _GRID, dtype=torch.float64)
        count = self.basis.shape[0] - self.basis.shape[1]
        images = self.rest * (grid.square() + (1 - grid).square())
        due = (self.law.power(grid.view(-1, 1)) * count + images).log()
        order = due.argsort()
        told = outside.double().cpu().clamp(min=1e-30).log()
        place = torch.searchsorted(due[order], told).clamp(max=_GRID - 1)
        return grid[order][place].to(outside)


def read_rows(view: View, space: Subspace, prior: GaussianPrior, components: int) -> Rows:
    """All rows of a release, in one pile."""
    samples, encoded = exercise(view)
    tried = space.project(encoded.images.to(view.device))
    law = law_of(tried.clone(), space.embed(samples.images), encoded)
    true = encoded.secrets.weights[:, 0].to(view.device)
    basis = prior.basis[:, :components]
    rest = float(prior.total - prior.variances[:components].sum())
    least, most = (float(end) for end in encoded.secrets.weights.aminmax())
    energies = _Energies(law, basis, prior.mean, rest, least, most)
    doubt = (energies.weights(energies.parted(tried)[1]) - true).square().mean()
    rows, outside = energies.parted(space.project(view.encodings.flatten(0, 1)))
    return _told(rows, view.labels.flatten(0, 1), energies, energies.weights(outside), doubt, prior)


def _told(
    rows: Tensor,
    labels: Tensor,
    energies: _Energies,
    weights: Tensor,
    doubt: Tensor,
    prior: GaussianPrior,
) -> Rows:
    """Labels of two classes name weights but for their order, which energies tell."""
    shares, classes = labels.topk(2)
    two = shares[:, 1] > PRESENT
    swapped = ((shares - weights.view(-1, 1)).abs().argmin(1) == 1) & two
    weight = torch.where(two, shares.gather(1, swapped.long().view(-1, 1))[:, 0], weights)
    first = classes.gather(1, swapped.long().view(-1, 1))[:, 0]
    second = torch.where(two, classes.gather(1, (~swapped).long().view(-1, 1))[:, 0], first)
    means = (prior.means - prior.mean) @ energies.basis
    share = weight.view(-1, 1)
    values = rows - share * means[first] - (1 - share) * means[second]
    typical = float(prior.total) / len(prior.mean)
    noise = energies.law.power(share).to(rows).clamp(min=_EXACT * typical)
    return Rows(values, first, second, weight, two, noise, float(doubt))

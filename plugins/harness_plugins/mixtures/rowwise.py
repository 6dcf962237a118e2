"""The best linear estimate, for white noise, of the first image of each row by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.classes import slot_shares

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.law import NoiseLaw
    from harness_plugins.mixtures.prior import GaussianPrior

_BLOCK = 2048


@dataclass(frozen=True)
class Gains:
    """For rows with `own` weight [n], `others` [n] the sum of squares, and white `noise` [n]."""

    own: Tensor
    others: Tensor
    noise: Tensor

    def of(self, variances: Tensor) -> Tensor:
        """[n, q]: by how much each coordinate of a row is multiplied."""
        own = self.own.view(-1, 1)
        power = (own.square() + self.others.view(-1, 1)) * variances + self.noise.view(-1, 1)
        return own * variances / power


def filtered(
    prior: GaussianPrior, law: NoiseLaw, rows: Tensor, weights: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """[n, d] and the expected squared errors [n] of rows [n, d] with weights [n, k].

    Soft labels [n, classes] choose the means of the images, where there are any.
    """
    gains = _gains(law, rows, weights)
    centres, offsets = row_means(prior, rows, weights, labels)
    found = centres.clone()
    for number, block in enumerate(rows.split(_BLOCK)):
        part = slice(number * _BLOCK, number * _BLOCK + len(block))
        few = Gains(gains.own[part], gains.others[part], gains.noise[part])
        found[part] += _filter(prior, few, block - law.gain * offsets[part])
    return found, _error(prior, gains)


def _gains(law: NoiseLaw, rows: Tensor, weights: Tensor) -> Gains:
    scaled = weights * law.gain
    noise = law.power(weights).to(rows.dtype)
    return Gains(scaled[:, 0], scaled[:, 1:].square().sum(1), noise)


def _filter(prior: GaussianPrior, gains: Gains, rows: Tensor) -> Tensor:
    inside = rows @ prior.basis
    found = (inside * gains.of(prior.variances)) @ prior.basis.T
    if prior.complete:
        return found
    outside = torch.addmm(rows, inside, prior.basis.T, alpha=-1)
    return found.addcmul_(outside, gains.of(prior.rest.view(1)))


def _error(prior: GaussianPrior, gains: Gains) -> Tensor:
    """Σ λ (1 - w · gain), over all dimensions."""
    own = gains.own.view(-1, 1)
    inside = (prior.variances * (1 - own * gains.of(prior.variances))).sum(1)
    d, q = prior.basis.shape
    rest = prior.rest.view(1)
    return inside + (d - q) * (rest * (1 - own * gains.of(rest))).squeeze(1)


def row_means(
    prior: GaussianPrior, rows: Tensor, weights: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """[n, d] what each row's own image is centred on, and the mean of each row.

    What the label says beside the own image's class is the others'; weight that no label
    speaks of is of public images, centred on the mean of all.
    """
    total, own = weights.sum(1, keepdim=True), weights[:, :1]
    if labels is None:
        return prior.mean.expand_as(rows), total * prior.mean
    shares = slot_shares(weights, labels, 0)
    centres = shares @ prior.means
    if weights.shape[1] == 1:
        return centres, own * centres
    others = (labels - own * shares).clamp(min=0)
    unsaid = (total - own - others.sum(1, keepdim=True)).clamp(min=0)
    return centres, own * centres + others @ prior.means + unsaid * prior.mean

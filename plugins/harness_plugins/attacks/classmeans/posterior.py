"""Class means from sums over a release and what was believed before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Samples
    from harness_plugins.mixtures.prior import GaussianPrior

_NUMBERS = 1 << 24
_BLOCK = 2048


@dataclass(frozen=True)
class Belief:
    """Class means before the release: normal about `means` [classes, d].

    `variances` [classes, q] along the columns of the images' principal `basis` [d, q]; outside
    of it they are taken to be certain. `within` [q] is the variance of a class's images there,
    `total` [] that of all dimensions together, `origin` [d] the mean of all classes.
    """

    means: Tensor
    variances: Tensor
    within: Tensor
    basis: Tensor
    origin: Tensor
    total: Tensor

    @classmethod
    def of(cls, prior: GaussianPrior, public: Samples, counts: Tensor, *, spread: bool) -> Belief:
        """From the public pool, for `counts` [classes] of private images.

        `spread`: about the mean of all, as far as public class means lie from it.
        """
        means, known = class_means(public, len(counts))
        means[known == 0] = prior.mean
        within = prior.variances
        drawn = 1 / counts.clamp(min=1).view(-1, 1) + 1 / known.clamp(min=1).view(-1, 1)
        between = prior.coordinates(means - prior.mean).square().mean(0)
        lacking = (known == 0).view(-1, 1) | spread
        variances = within * drawn + torch.where(lacking, between, torch.zeros_like(between))
        centre = prior.mean.expand_as(means) if spread else means
        return cls(centre, variances, within, prior.basis, prior.mean, prior.total)


def class_means(samples: Samples, classes: int) -> tuple[Tensor, Tensor]:
    """Means [classes, d], zero where there is no image, and counts [classes]."""
    flat = samples.images.flatten(1)
    sums = flat.new_zeros(classes, flat.shape[1])
    for rows, labels in zip(
        *(torch.split(of, _BLOCK) for of in (flat, samples.labels)), strict=True
    ):
        sums.index_add_(0, labels, rows)
    counts = samples.labels.bincount(minlength=classes)[:classes].to(flat)
    return sums / counts.clamp(min=1).view(-1, 1), counts


def least_squares(gram: Tensor, pull: Tensor) -> Tensor:
    """Class means [classes, d] of gram [classes, classes] and pull [classes, d]; 0 if unseen."""
    means: Tensor = torch.linalg.pinv(gram, hermitian=True) @ pull
    return means


def posterior(gram: Tensor, pull: Tensor, noise: Tensor, belief: Belief) -> tuple[Tensor, Tensor]:
    """Means [classes, d] and the squared error to be expected of each [classes].

    `gram` and `pull` of rows centred on `belief.origin`, `noise` [q] the variance of a row of
    unit N along each component. A system of all classes for each component:
    (G + s/P) m = pull + (s/P) m_0. Without noise, s/P is held above the rounding of G: of a class
    that no label names, what was known stays.
    """
    start = belief.means - belief.origin
    inside = start @ belief.basis
    told = (pull @ belief.basis).T
    ease = noise.view(-1, 1) / belief.variances.T.clamp(min=torch.finfo(noise.dtype).tiny)
    ease = ease.clamp(min=torch.finfo(gram.dtype).eps * float(gram.diagonal().amax()))
    found, errors = torch.empty_like(told), noise.new_zeros(len(gram))
    size = max(1, _NUMBERS // gram.numel())
    for at in torch.split(torch.arange(len(told), device=told.device), size):
        inverse = torch.linalg.inv(gram + torch.diag_embed(ease[at]))
        right = told[at] + ease[at] * inside.T[at]
        found[at] = (inverse @ right.unsqueeze(2)).squeeze(2)
        errors += (inverse.diagonal(dim1=1, dim2=2) * noise[at].view(-1, 1)).sum(0)
    return belief.means + (found.T - inside) @ belief.basis.T, errors

"""A Gaussian prior of the images, learned from public ones."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch

from harness_plugins.mixtures import PRIOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness.api import Budget, Progress, Samples, View

    Mean = Literal["public", "class"]

LARGEST = 5000
"""Dimensions up to which every principal component is kept; the eigenvectors of more would take
longer than the attack."""
_COMPONENTS = 2048
"""Components where there are more dimensions than that."""
_BYTES = 20
"""Bytes an entry of the covariance: the matrix, its eigenvectors, and what finding them takes."""
_HELD_OUT = 2000
_BLOCK = 2048


@dataclass(frozen=True)
class GaussianPrior:
    """Images of d values: normal about a mean, with covariance B diag(v) Bᵀ + rest (I − BBᵀ).

    `mean` [d] of all classes, `means` [classes, d] what each image is centred on: its class's
    mean, or `mean` for all. `basis` B [d, q] has orthonormal columns, `variances` v [q] fall,
    `rest` [] is the variance of each dimension outside. `kept` [] is the share of the held-out
    variance within the basis.
    """

    mean: Tensor
    means: Tensor
    basis: Tensor
    variances: Tensor
    rest: Tensor
    kept: Tensor

    @classmethod
    def of(cls, view: View) -> GaussianPrior:
        """What the preparation `gaussian-prior` made."""
        return cls(**view.made(PRIOR.name))

    @classmethod
    def known(cls, mean: Tensor, covariance: Tensor, classes: int = 1) -> GaussianPrior:
        """The prior of a known mean [d] and covariance [d, d]."""
        variances, basis = torch.linalg.eigh(covariance)
        variances, basis = variances.flip(0).clamp(min=0), basis.flip(1)
        return cls(
            mean,
            mean.expand(classes, -1),
            basis.contiguous(),
            variances,
            mean.new_zeros(()),
            mean.new_ones(()),
        )

    @property
    def complete(self) -> bool:
        """Whether the basis spans all dimensions."""
        return self.basis.shape[0] == self.basis.shape[1]

    @cached_property
    def total(self) -> Tensor:
        """[] sum of the variances of all dimensions."""
        outside = self.basis.shape[0] - self.basis.shape[1]
        return self.variances.sum() + self.rest * outside

    def coordinates(self, rows: Tensor) -> Tensor:
        """[n, q] of centred rows [n, d]."""
        return rows @ self.basis

    def embed(self, images: Tensor) -> Tensor:
        """Images [n, ...] as centred rows [n, d]."""
        return images.flatten(1) - self.mean

    def whiten(self, rows: Tensor) -> Tensor:
        """Σ^-1/2 times centred rows [n, d]."""
        floor = torch.finfo(rows.dtype).eps * self.variances.max()
        inside = self.coordinates(rows)
        scaled = (inside * self.variances.clamp(min=floor).rsqrt()) @ self.basis.T
        if self.complete:
            return scaled
        outside = torch.addmm(rows, inside, self.basis.T, alpha=-1)
        return scaled + outside * self.rest.clamp(min=floor).rsqrt()

    def tensors(self) -> dict[str, Tensor]:
        """By name, for storing."""
        return {field.name: getattr(self, field.name).contiguous() for field in fields(self)}


def learn_prior(
    view: View, budget: Budget, progress: Progress, *, mean: Mean
) -> Mapping[str, Tensor]:
    """The preparation `gaussian-prior`: from the public pool, as it is."""
    progress(0, 2, "covariance of the public images")
    prior = prior_of(view.public, view.classes, mean, budget.megabytes)
    progress(2, 2, f"{float(prior.kept):.1%} of the variance")
    return prior.tensors()


def prior_of(public: Samples, classes: int, mean: Mean, megabytes: int) -> GaussianPrior:
    """Directions from nine tenths of the images, variances along them from the tenth held out.

    Variances of the sample itself would be too large in the leading directions and too small
    in the last; measured on other images they are what a new image has. They are made to fall
    by isotonic regression. No image that is attacked takes part.
    """
    rows = public.images.flatten(1)
    held = min(_HELD_OUT, max(1, len(rows) // 10)) if len(rows) > 1 else 0
    seen, labels = rows[held:], public.labels[held:]
    overall = seen.mean(0)
    means = _means(seen, labels, overall, classes, mean)
    basis = _directions(seen, means, labels, megabytes)
    spread = _Spread(basis)
    own = labels if not held else public.labels[:held]
    for block, names in _blocks(rows[:held] if held else seen, own):
        spread.add(block - means[names])
    return GaussianPrior(overall, means, basis, *spread.measured())


def _means(rows: Tensor, labels: Tensor, overall: Tensor, classes: int, mean: Mean) -> Tensor:
    """[classes, d]; a class without images gets the mean of all."""
    means = overall.expand(classes, -1).clone()
    if mean == "class":
        counts = labels.bincount(minlength=classes)[:classes]
        sums = torch.zeros_like(means).index_add_(0, labels, rows)
        found = counts > 0
        means[found] = sums[found] / counts[found].view(-1, 1)
    return means


def _blocks(rows: Tensor, labels: Tensor) -> zip[tuple[Tensor, Tensor]]:
    return zip(rows.split(_BLOCK), labels.split(_BLOCK), strict=True)


def _directions(rows: Tensor, means: Tensor, labels: Tensor, megabytes: int) -> Tensor:
    """[d, q] orthonormal, those of the largest variance first: all d of them where they fit."""
    n, d = rows.shape
    if d <= LARGEST and _BYTES * d * d <= megabytes * 2**19:
        covariance = rows.new_zeros(d, d)
        for block, names in _blocks(rows, labels):
            centred = block - means[names]
            covariance.addmm_(centred.T, centred, alpha=1 / n)
        _, basis = torch.linalg.eigh(covariance)
        return basis.flip(1).contiguous()
    wanted = min(_COMPONENTS, n, d, megabytes * 2**18 // (4 * d))
    _, _, found = torch.svd_lowrank(rows - means[labels], q=max(1, wanted))
    kept: Tensor = found.contiguous()
    return kept


class _Spread:
    """Variances along a basis and outside it, summed over blocks of centred rows."""

    def __init__(self, basis: Tensor) -> None:
        self.basis = basis
        self.inside = basis.new_zeros(basis.shape[1])
        self.total = basis.new_zeros(())
        self.count = 0

    def add(self, rows: Tensor) -> None:
        self.inside += (rows @ self.basis).square().sum(0)
        self.total += rows.square().sum()
        self.count += len(rows)

    def measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """Variances [q] in falling order, that of each other dimension, and the share inside."""
        d, q = self.basis.shape
        inside, total = self.inside / self.count, self.total / self.count
        outside = (total - inside.sum()).clamp(min=0)
        rest = outside / (d - q) if d > q else outside * 0
        kept = inside.sum() / total.clamp(min=torch.finfo(total.dtype).tiny)
        return _falling(inside), rest, kept.clamp(max=1)


def _falling(variances: Tensor) -> Tensor:
    """The nearest sequence that does not rise, positive where anything is."""
    from scipy.optimize import isotonic_regression

    fitted = isotonic_regression(variances.double().cpu().numpy(), increasing=False).x
    floor = torch.finfo(variances.dtype).eps * max(float(fitted[0]), 1e-30) * 1e-2
    return torch.from_numpy(fitted.copy()).to(variances).clamp(min=floor)

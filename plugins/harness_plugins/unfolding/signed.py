"""Images from mixtures whose signs are guessed, and guessed better the more is solved.

Each encoding is |m| of a mixture m = W X with an expected sign p. Given signs, X is a linear
problem under a Gaussian prior; given X, a sign is as sure as its mixture is far from zero. The
two take turns (expectation and maximisation) while the deviation that mixtures are allowed falls.
Where rounds say each image several times over, the signs of most mixtures decide those of the
rest, and the answer becomes exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture
    from harness_plugins.mixtures.prior import GaussianPrior

_SURE = 12.0  # log-odds that count as certain
_COMPONENTS = 512  # of the prior: the rest are treated alike
_ITERATIONS = 15
_FIRST, _LAST = 0.5, 0.003  # deviations that mixtures are allowed, first and last sweep


@dataclass(frozen=True)
class Folded:
    """`seen` [rows, d] absolute values, `odds` [rows, d] half the log-odds of their signs.

    `noise` is the deviation of what the defense added beside the mask, `hidden` whether signs
    are in doubt at all.
    """

    seen: Tensor
    odds: Tensor
    mixture: Mixture
    noise: float = 0.0
    hidden: bool = True


def solved(folded: Folded, prior: GaussianPrior, sweeps: int) -> Iterator[Tensor]:
    """Images [n, d] after each of `sweeps` sweeps, the first from the guessed signs alone.

    One sweep is all there is where signs are not hidden.
    """
    cut, others = _Cut(prior), _Others.of(folded, prior)
    images = prior.mean.expand(folded.mixture.n, -1)
    odds = folded.odds
    for sweep, allowed in enumerate(_allowed(sweeps if folded.hidden else 1)):
        if sweep:
            odds = _surer(folded, images, others, allowed)
        images = _solve(folded, odds, others, allowed, cut, images)
        yield images


def _allowed(sweeps: int) -> list[float]:
    """Falling by equal factors; a single sweep takes the mixtures at their word."""
    factors = [sweep / (sweeps - 1) for sweep in range(sweeps)] if sweeps > 1 else [1.0]
    return [_FIRST * (_LAST / _FIRST) ** factor for factor in factors]


@dataclass(frozen=True)
class _Others:
    """What else is in each encoding: its `mean` [rows, d] and `variance` [rows, 1] a value."""

    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, folded: Folded, prior: GaussianPrior) -> _Others:
        """Of public images, which are as the prior says, and of noise."""
        public = folded.mixture.public
        spread = prior.total / len(prior.mean)
        variance = public.square().sum(1, keepdim=True) * spread + folded.noise**2
        return cls(public.sum(1, keepdim=True) * prior.mean, variance)


def _surer(folded: Folded, images: Tensor, others: _Others, allowed: float) -> Tensor:
    """The guess, and what the images so far say: log p(+)/p(-) = 2 |m| (W X) / deviation^2."""
    told = folded.mixture.apply(images).add_(others.mean).mul_(folded.seen)
    return told.div_(allowed**2 + others.variance).add_(folded.odds).clamp_(-_SURE, _SURE)


def _solve(
    folded: Folded, odds: Tensor, others: _Others, allowed: float, prior: _Cut, start: Tensor
) -> Tensor:
    """Images of the least (W X - m)^2/v + (X - mean)' C^-1 (X - mean), v = var m + allowed^2.

    Conjugate gradients, preconditioned as if each image had one precision for all its values.
    """
    sign = odds.tanh()
    unsure = folded.seen.square() * (1 - sign.square())
    trust = (unsure + (allowed**2 + others.variance)).reciprocal_()
    system = _System(folded.mixture, trust, prior)
    pull = folded.mixture.gather((folded.seen * sign - others.mean).mul_(trust))
    pull += prior.precision(prior.mean.expand_as(start))
    return system.solve(pull, start)


class _System:
    """W' V W + C^-1 for precisions V [rows, d]."""

    def __init__(self, mixture: Mixture, trust: Tensor, prior: _Cut) -> None:
        self.mixture, self.trust, self.prior = mixture, trust, prior
        squares = replace(mixture, weights=mixture.weights.square())
        self.level = squares.gather(trust).mean(1, keepdim=True)

    def times(self, images: Tensor) -> Tensor:
        fit = self.mixture.gather(self.mixture.apply(images).mul_(self.trust))
        return fit + self.prior.precision(images)

    def solve(self, pull: Tensor, start: Tensor) -> Tensor:
        images = start.clone()
        residual = pull - self.times(images)
        ready = self.prior.resolved(residual, self.level)
        direction, size = ready.clone(), (residual * ready).sum()
        for _ in range(_ITERATIONS):
            changed = self.times(direction)
            step = size / (direction * changed).sum().clamp(min=torch.finfo(size.dtype).tiny)
            images += step * direction
            residual -= step * changed
            ready = self.prior.resolved(residual, self.level)
            before, size = size, (residual * ready).sum()
            direction = ready + (size / before.clamp(min=torch.finfo(size.dtype).tiny)) * direction
        return images


class _Cut:
    """A prior of its leading components; the others share their mean variance."""

    def __init__(self, prior: GaussianPrior) -> None:
        d = prior.basis.shape[0]
        count = min(_COMPONENTS, prior.basis.shape[1])
        self.mean = prior.mean
        self.basis = prior.basis[:, :count]
        left = (prior.total - prior.variances[:count].sum()).clamp(min=0)
        rest = left / max(1, d - count)
        floor = 1e-4 * prior.total / d
        self.rest = rest.clamp(min=floor) if d > count else prior.variances.min().clamp(min=floor)
        self.variances = prior.variances[:count].clamp(min=floor)

    def precision(self, rows: Tensor) -> Tensor:
        """C^-1 rows [n, d]."""
        inside = rows @ self.basis
        inside *= 1 / self.variances - 1 / self.rest
        return (rows / self.rest).addmm_(inside, self.basis.T)

    def resolved(self, rows: Tensor, level: Tensor) -> Tensor:
        """(level + C^-1)^-1 rows [n, d], for levels [n, 1]."""
        rest = 1 / (level + 1 / self.rest)
        inside = rows @ self.basis
        inside *= 1 / (level + 1 / self.variances) - rest
        return (rows * rest).addmm_(inside, self.basis.T)

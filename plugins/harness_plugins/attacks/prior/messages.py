"""What the rows of a release say of each image beside what is held of it already.

Expectation propagation with a Gaussian of one variance an image on either side: of the rows,
whose noise is white, and of the images (Rangan, Schniter and Fletcher, Vector Approximate
Message Passing, algorithm 1; their single variance is one for each image here).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.systems import system_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture
    from harness_plugins.mixtures.posterior import Mixed

_SWEEPS, _SETTLING = 30, 10
_FLOOR = 1e-4
"""Power of the noise, at the least: deviations of a hundredth show in no image."""
_NOTHING, _SMALLEST = 1e-12, 1e-9
_WORKING = 400 * 2**20
"""Bytes for one block of columns, of which a solution takes about as many copies as this:"""
_COPIES = 6
_NARROW, _WIDE = 8, 512
_LOOSEST = 20.0
"""How much more than its error a belief's variance may be without the rows."""


@dataclass(frozen=True)
class Belief:
    """Each image's `means` [n, d] and `variances` [n] of every value, but for the rows."""

    means: Tensor
    variances: Tensor


@dataclass(frozen=True)
class Rows:
    """`told` [rows, d] = W x + white noise [rows]; W of the images of `mixture`."""

    told: Tensor
    mixture: Mixture
    noise: Tensor

    @classmethod
    def of(cls, model: Mixed, rows: Tensor) -> Rows:
        """Of a release: public images in it are known by their mean, and noise beyond that."""
        typical = model.prior.total / len(model.prior.mean)
        noise = (model.noise + model.patched * typical).clamp(min=_FLOOR)
        if bool(model.outside.any()):
            rows = torch.addr(rows, model.outside, model.prior.mean, alpha=-1)
        return cls(rows, model.mixture, noise.to(rows.dtype))

    @cached_property
    def _squares(self) -> Tensor:
        return self.mixture.weights.double().square()

    def precision(self, variances: Tensor) -> Tensor:
        """[n] of what the rows say of each image, of the others held with `variances` [n].

        Belief propagation on the variances: exact where the mixture has no rings, and all but
        exact where they are long.
        """
        sources = self.mixture.sources
        prior = variances.double().reciprocal()
        held = variances.double()[sources]
        for _ in range(_SWEEPS):
            told, total = self._sweep(held)
            held = (prior[sources] + total[sources] - told).clamp(min=1e-30).reciprocal()
        return self._sweep(held)[1].clamp(min=_NOTHING).to(variances.dtype)

    def _sweep(self, held: Tensor) -> tuple[Tensor, Tensor]:
        """Precisions from rows to images [rows, k], and their sums [n]."""
        spread = self._squares * held
        others = self.noise.double().view(-1, 1) + spread.sum(1, keepdim=True) - spread
        told = self._squares / others
        total = told.new_zeros(self.mixture.n)
        total.index_add_(0, self.mixture.sources.flatten(), told.flatten())
        return told, total

    def solve(self, belief: Belief) -> Tensor:
        """[n, d] the posterior mean under a belief: in units of its deviations, about its means."""
        deviation = belief.variances.sqrt()
        weights = self.mixture.weights * deviation[self.mixture.sources]
        scaled = replace(self.mixture, weights=weights)
        system = system_of(scaled, self.noise, torch.zeros_like(self.noise), self.told.dtype)
        found = belief.means.clone()
        for part in self._blocks():
            left = self._left(belief.means, part)
            change = system.solve(left, left.new_ones(left.shape[1]))
            found[:, part].addcmul_(change.to(found.dtype), deviation.view(-1, 1))
        return found

    def _left(self, images: Tensor, part: slice) -> Tensor:
        """[rows, B]: what images [n, d] leave unexplained of some columns."""
        return self.told[:, part] - self.mixture.apply(images[:, part])

    def _blocks(self) -> Iterator[slice]:
        """Columns, as many at a time as there is memory for."""
        numbers = _COPIES * max(1, self.mixture.n + len(self.told))
        width = min(_WIDE, max(_NARROW, _WORKING // (self.told.element_size() * numbers)))
        return (slice(at, at + width) for at in range(0, self.told.shape[1], width))

    def extrinsic(self, belief: Belief) -> tuple[Tensor, Tensor]:
        """[n, d] what the rows say of each image, as the image and noise of precision [n]."""
        precision = self.precision(belief.variances)
        found = self.solve(belief)
        away = (belief.variances * precision).reciprocal().view(-1, 1)
        return found.addcmul_(found - belief.means, away), precision

    def consistent(self, images: Tensor, errors: Tensor) -> Belief:
        """The belief under which the rows' posterior means are these images [n, d].

        Its variances are those with which errors [n] a value come out.
        """
        variances = errors = errors.clamp(min=_SMALLEST)
        for _ in range(_SETTLING):
            variances = _without(errors, self.precision(variances))
        means = images.clone()
        for part in self._blocks():
            pull = self.mixture.gather(self._left(images, part) / self.noise.view(-1, 1))
            means[:, part].addcmul_(pull, variances.view(-1, 1), value=-1)
        return Belief(means, variances)


def belief_of(images: Tensor, errors: Tensor, noisy: Tensor, precision: Tensor) -> Belief:
    """What a denoiser's images [n, d] with errors [n] say beside what it was shown."""
    variances = _without(errors, precision)
    step = (variances * precision).view(-1, 1)
    return Belief(torch.addcmul(images, images - noisy, step), variances)


def _without(errors: Tensor, precision: Tensor) -> Tensor:
    """Variances [n] that give these errors [n] together with observations of this precision."""
    told = errors.reciprocal()
    return (told - precision).maximum(told / _LOOSEST).reciprocal()

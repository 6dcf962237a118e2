"""The best linear estimate of mixed images for the stated noise: their Gaussian posterior mean.

With images x_i = m_i + B z_i + (what is outside B), z normal with variances λ, and rows
y = g W x + noise, every column of B is a system of its own (systems.py). Under that
noise, white and of known power, the estimate has the least expected squared error of all linear
ones, and where images are Gaussian of all there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from harness.api.plugins import Progress, silent
from harness_plugins.mixtures.classes import class_shares
from harness_plugins.mixtures.systems import SparseSystem, System, system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from harness_plugins.mixtures.law import NoiseLaw
    from harness_plugins.mixtures.mixture import Mixture
    from harness_plugins.mixtures.prior import GaussianPrior

_KNOTS = 48
_SINGLE = 1e4
"""Signal over noise up to which float32 loses nothing that could be seen."""
_WORKING = 400 * 2**20
"""Bytes for one block of columns."""
_ROWS = 2048
_NARROW, _WIDE = 8, 512


@dataclass(frozen=True)
class Mixed:
    """A release of mixtures as a Gaussian model.

    `mixture` has private weights, times the law's gain; `noise` [rows] and `patched` [rows] are
    its noise; `shares` [n, classes] says what each image is centred on, `outside` [rows] the
    weight of public images, centred on the mean of all.
    """

    prior: GaussianPrior
    mixture: Mixture
    noise: Tensor
    patched: Tensor
    shares: Tensor
    outside: Tensor

    @classmethod
    def of(
        cls, prior: GaussianPrior, law: NoiseLaw, mixture: Mixture, labels: Tensor | None
    ) -> Mixed:
        """Under a law; `labels` [rows, classes] choose each image's mean, where there are any."""
        classes = len(prior.means)
        shares = prior.mean.new_full((mixture.n, classes), 1 / classes)
        if labels is not None:
            shares = class_shares(mixture, labels)
        first = mixture.weights[:, :1] + mixture.public[:, :1]
        return cls(
            prior=prior,
            mixture=replace(mixture, weights=mixture.weights * law.gain),
            noise=law.power(first),
            patched=law.patched(mixture),
            shares=shares,
            outside=mixture.public.sum(1) * law.gain,
        )

    @cached_property
    def dtype(self) -> torch.dtype:
        """float64 where noise is so low that float32 would lose the system's condition."""
        if self.noise.device.type == "mps":
            return torch.float32
        largest = float(self.prior.variances.max()) if len(self.prior.variances) else 0.0
        signal = max(largest, float(self.prior.rest))
        return torch.float32 if signal <= _SINGLE * float(self.noise.min()) else torch.float64

    @cached_property
    def system(self) -> System:
        """The normal equations."""
        return system_of(self.mixture, self.noise, self.patched, self.dtype)

    @cached_property
    def centres(self) -> Tensor:
        """[n, d] what each image is centred on."""
        return self.shares @ self.prior.means

    @cached_property
    def _offsets(self) -> tuple[Tensor, Tensor]:
        """[rows, classes+1] and [classes+1, d]: their product is the mean of each row."""
        mixed = torch.cat([self.mixture.apply(self.shares), self.outside.view(-1, 1)], 1)
        return mixed, torch.cat([self.prior.means, self.prior.mean.view(1, -1)])

    def means(self) -> Tensor:
        """[rows, d] the mean of each row."""
        mixed, means = self._offsets
        return mixed @ means

    def estimate(
        self,
        rows: Tensor,
        out: Tensor | None = None,
        report: Progress = silent,
    ) -> Tensor:
        """[n, d] for rows [rows, d]; written into `out` where it is given."""
        n, d = self.mixture.n, rows.shape[1]
        out = rows.new_empty(n, d) if out is None else out
        if self.prior.complete and len(rows) == n:
            return self._in_place(rows, out, report)
        torch.matmul(self.shares, self.prior.means, out=out)
        mixed, means = self._offsets
        blocks = list(self._blocks(self.prior.basis.shape[1]))
        for number, block in enumerate(blocks):
            basis = self.prior.basis[:, block]
            told = (rows @ basis).addmm_(mixed, means @ basis, alpha=-1)
            found = self.system.solve(told, self.prior.variances[block])
            out.addmm_(found.to(out.dtype), basis.T)
            report(number + 1, len(blocks))
        if not self.prior.complete:
            self._add_outside(rows, out)
        return out

    def _in_place(self, rows: Tensor, out: Tensor, report: Progress) -> Tensor:
        """As many rows as images: their coordinates, then the solution's, take the answer's place.

        The release is read once and the answer passed over three times, whatever n.
        """
        basis, (mixed, means) = self.prior.basis, self._offsets
        for part in _spans(self.mixture.n, _ROWS):
            torch.matmul(rows[part], basis, out=out[part])
            out[part].addmm_(mixed[part], means @ basis, alpha=-1)
        blocks = list(self._blocks(basis.shape[1]))
        for number, block in enumerate(blocks):
            out[:, block] = self.system.solve(out[:, block], self.prior.variances[block])
            report(number + 1, len(blocks))
        for part in _spans(self.mixture.n, _ROWS):
            out[part] = torch.addmm(self.shares[part] @ self.prior.means, out[part], basis.T)
        return out

    def _add_outside(self, rows: Tensor, out: Tensor) -> None:
        """What the basis does not span, as isotropic: rows (I − BBᵀ), column by column."""
        mixed, means = self._offsets
        basis = self.prior.basis
        inside = (rows @ basis).addmm_(mixed, means @ basis, alpha=-1)
        for block in self._blocks(rows.shape[1]):
            told = torch.addmm(rows[:, block], mixed, means[:, block], alpha=-1)
            told.addmm_(inside, basis[block].T, alpha=-1)
            same = self.prior.rest.expand(told.shape[1])
            out[:, block] += self.system.solve(told, same).to(out.dtype)

    def _blocks(self, columns: int) -> Iterator[slice]:
        fits = _WORKING // (self.system.bytes * max(1, self.mixture.n))
        return _spans(columns, min(_WIDE, max(_NARROW, fits)))

    def expected_error(self, recovered: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """[n] expected squared error of each image's estimate, given the release.

        Variance over λ changes slowly with λ: it is found at a few of them and interpolated.
        `recovered` maps directions [q, d] to images, where rows are not in the images' space.
        """
        lengths, beyond = self._lengths(recovered)
        variances = torch.cat([self.prior.variances, self.prior.rest.view(1)])
        knots = _knots(variances)
        ratio = self.system.uncertainty(knots) / knots.to(self.dtype)
        spread = _interpolation(variances, knots) * variances.double().view(-1, 1)
        weights = (spread * torch.cat([lengths, beyond.view(1)]).double().view(-1, 1)).sum(0)
        return (ratio.double().cpu() @ weights.cpu()).to(self.prior.mean)

    def _lengths(self, recovered: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
        """Squared lengths [q] of the directions as images, and those of all others together."""
        basis = self.prior.basis
        d, q = basis.shape
        if recovered is None:
            return basis.new_ones(q), basis.new_tensor(float(d - q))
        images = recovered(basis.T.contiguous()).flatten(1)
        return images.square().sum(1), basis.new_tensor(float(d - q))

    @property
    def effort(self) -> dict[str, float]:
        """How an iteration ended, where one ran."""
        if not isinstance(self.system, SparseSystem):
            return {}
        return {"cg_steps": float(self.system.steps), "cg_residual": self.system.residual}


def _spans(count: int, width: int) -> Iterator[slice]:
    return (slice(start, start + width) for start in range(0, count, width))


def _knots(variances: Tensor) -> Tensor:
    """A few variances from the least to the largest, evenly by their logarithms."""
    low, high = float(variances[variances > 0].min()), float(variances.max())
    count = min(_KNOTS, len(variances))
    spaced = torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64)
    return spaced.to(variances)


def _interpolation(variances: Tensor, knots: Tensor) -> Tensor:
    """[q, knots]: weights that interpolate linearly in the logarithm."""
    if len(knots) == 1:
        return torch.ones(len(variances), 1, dtype=torch.float64)
    at, given = knots.double().log(), variances.double().clamp(min=float(knots[0])).log()
    right = torch.searchsorted(at, given).clamp(1, len(at) - 1)
    share = ((given - at[right - 1]) / (at[right] - at[right - 1])).clamp(0, 1)
    weights = torch.zeros(len(given), len(at), dtype=torch.float64, device=at.device)
    rows = torch.arange(len(given), device=at.device)
    weights[rows, right] = share
    weights[rows, right - 1] = 1 - share
    return weights


def predicted_snr(images: Tensor, error: Tensor) -> float:
    """Mean over images [n, d] of the SNR in dB that their expected squared errors [n] foretell."""
    energy = images.flatten(1).square().sum(1) + error
    ratio = energy / error.clamp(min=torch.finfo(error.dtype).tiny)
    return float((10 * ratio.log10()).clamp(-120, 120).mean())

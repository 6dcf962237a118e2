"""The normal equations of mixed images, a column for each principal component.

(WᵀN⁻¹W + 1/λ) z = WᵀN⁻¹ y, N the noise of each row, λ the prior variance of the column.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from harness_plugins.mixtures.bags import Bags
from harness_plugins.mixtures.conjugate import conjugate_gradients
from harness_plugins.mixtures.rings import Rings, Symmetric

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture

_PROBES = 16
_DENSE, _DENSE_NUMBERS = 1000, 2**25
"""Images, and images times rows, up to which the normal equations are written out."""
_STEPS = {torch.float32: 300, torch.float64: 3000}
_PATIENCE = 100
"""Steps after which eigenvectors are found instead, which take as long as some 60 of 2000 images:
mixtures of four images without noise take thousands of steps."""
_EIGENVECTORS = 4096
"""Images up to which there is memory for them, half a gigabyte."""
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


class System(Protocol):
    """What is solved, block of columns by block."""

    bytes: int
    """Of working memory an image and column."""

    def solve(self, rows: Tensor, variances: Tensor) -> Tensor:
        """Z [n, B] for y [rows, B], under prior variances [B]."""
        ...

    def uncertainty(self, variances: Tensor) -> Tensor:
        """[n, B]: the variance of each z given the release."""
        ...


def system_of(mixture: Mixture, noise: Tensor, patched: Tensor, dtype: torch.dtype) -> System:
    """For white noise [rows] and noise `patched` [rows] times λ."""
    if mixture.following is not None:
        return RingSystem(mixture, mixture.following, noise, dtype)
    return SparseSystem(mixture, noise, patched, dtype)


class RingSystem:
    """Pairs of one round: periodic tridiagonal, solved exactly in O(n) a column."""

    bytes = 12

    def __init__(
        self, mixture: Mixture, following: Tensor, noise: Tensor, dtype: torch.dtype
    ) -> None:
        self.rings, self.order = Rings.of(following)
        own, after = ring_neighbours(mixture, self.order, following)
        self.rows, self.after, self.dtype = own, after, dtype
        precision = noise[own].reciprocal()
        first, second = mixture.weights[own].to(noise).unbind(1)
        self.first = (first * precision).to(dtype).view(-1, 1)
        self.second = (second * precision).to(dtype).view(-1, 1)
        diagonal = first.square() * precision
        diagonal.index_add_(0, after, second.square() * precision)
        self.diagonal = diagonal.to(dtype).view(-1, 1)
        self.coupling = (first * second * precision).to(dtype)

    def _factorised(self, variances: Tensor) -> Symmetric:
        shift = variances.to(self.dtype).reciprocal()
        return Symmetric(self.rings, self.diagonal + shift, self.coupling)

    def solve(self, rows: Tensor, variances: Tensor) -> Tensor:
        """Z [n, B], in the images' own order."""
        along = rows.index_select(0, self.rows)
        for part in self.rings.slices(rows.shape[1]):
            along[:, part] = self._solve(along[:, part].to(self.dtype), variances[part])
        return torch.empty_like(along).index_copy_(0, self.order, along)

    def _solve(self, told: Tensor, variances: Tensor) -> Tensor:
        """[n, few] along the rings."""
        right = told * self.first
        right.index_add_(0, self.after, told * self.second)
        return self._factorised(variances).solve(right)

    def uncertainty(self, variances: Tensor) -> Tensor:
        """[n, B], exactly."""
        found = self._factorised(variances).inverse_diagonal()
        return torch.empty_like(found).index_copy_(0, self.order, found)


def ring_neighbours(mixture: Mixture, order: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
    """Along the rings: the row that each image comes first in, and the place of the next image."""
    own = mixture.sources[:, 0].argsort()[order]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return own, place[following[order]]


@dataclass(frozen=True)
class Spectrum:
    """WᵀN⁻¹W = V diag(s) Vᵀ, which solves the equations under every prior variance at once.

    `values` s [n] are not negative, `vectors` V [n, n]; float64.
    """

    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, mixture: Mixture, precision: Tensor) -> Spectrum:
        """For rows of this `precision` [rows], the same in each column."""
        weights = mixture.weights.double() * precision.double().sqrt().view(-1, 1)
        values, vectors = torch.linalg.eigh(replace(mixture, weights=weights).gram().to_dense())
        return cls(values.clamp(min=0), vectors)

    def solve(self, right: Tensor, shift: Tensor) -> Tensor:
        """Z [n, B] of (WᵀN⁻¹W + shift) Z = right [n, B], for shifts [B]."""
        along = self.vectors.T @ right.double()
        along /= self.values.view(-1, 1) + shift.double()
        return (self.vectors @ along).to(right.dtype)

    def inverse_diagonal(self, shift: Tensor) -> Tensor:
        """[n, B] the diagonals of the inverses, for shifts [B]."""
        inverse = (self.values.view(-1, 1) + shift.double()).reciprocal()
        return (self.vectors.square() @ inverse).to(shift.dtype)


@dataclass
class SparseSystem:
    """Any mixture and any number of rounds, by conjugate gradients.

    By eigenvectors, where those do not end soon and images are few.
    """

    mixture: Mixture
    noise: Tensor
    patched: Tensor
    dtype: torch.dtype
    bytes: int = field(init=False)
    steps: int = 0
    residual: float = 0.0
    spectrum: Spectrum | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """W and its transpose as sparse matrices."""
        mixture = self.mixture
        rows, k = mixture.sources.shape
        at = torch.arange(rows, device=mixture.sources.device).repeat_interleave(k)
        images, values = mixture.sources.flatten(), mixture.weights.to(self.dtype).flatten()
        self.down = Bags.of(at, images, values, rows)
        self.up = Bags.of(images, at, values, mixture.n)
        copies = 6 + 3 * -(-rows // max(1, mixture.n))
        self.bytes = copies * torch.finfo(self.dtype).bits // 8

    def _precision(self, variances: Tensor) -> Tensor:
        """[rows, B] or [rows, 1] of 1/N."""
        noise = self.noise.to(self.dtype).view(-1, 1)
        if not bool(self.patched.any()):
            return noise.reciprocal()
        return (noise + self.patched.to(self.dtype).view(-1, 1) * variances).reciprocal()

    @property
    def _decomposable(self) -> bool:
        """Whether all columns have one spectrum, and it can be found."""
        few = self.mixture.n <= _EIGENVECTORS and self.noise.device.type != "mps"
        return few and not bool(self.patched.any())

    def _spectrum(self) -> Spectrum:
        if self.spectrum is None:
            self.spectrum = Spectrum.of(self.mixture, self.noise.reciprocal())
        return self.spectrum

    def _solve(self, right: Tensor, precision: Tensor, variances: Tensor) -> Tensor:
        shift = variances.reciprocal()

        def times(z: Tensor) -> Tensor:
            return (self.up @ (precision * (self.down @ z))).addcmul_(z, shift)

        if self.spectrum is not None:
            return self._solve_exactly(times, right, shift)
        tolerance, most = _TOLERANCE[self.dtype], _STEPS[self.dtype]
        steps = _PATIENCE if self._decomposable else most
        diagonal = self.up.squared() @ precision.contiguous() + shift
        solved = conjugate_gradients(times, diagonal, right, tolerance=tolerance, steps=steps)
        self.steps = max(self.steps, solved.steps)
        if solved.residual > tolerance and self._decomposable:
            return self._solve_exactly(times, right, shift)
        self.residual = max(self.residual, solved.residual)
        return solved.values

    def _solve_exactly(
        self, times: Callable[[Tensor], Tensor], right: Tensor, shift: Tensor
    ) -> Tensor:
        values = self._spectrum().solve(right, shift)
        wanted = right.norm(dim=0).clamp(min=torch.finfo(right.dtype).tiny)
        left = (right - times(values)).norm(dim=0)
        self.residual = max(self.residual, float((left / wanted).max()))
        return values

    def solve(self, rows: Tensor, variances: Tensor) -> Tensor:
        """Z [n, B]."""
        variances = variances.to(self.dtype)
        precision = self._precision(variances)
        return self._solve(self.up @ (precision * rows.to(self.dtype)), precision, variances)

    def uncertainty(self, variances: Tensor) -> Tensor:
        """[n, B], exactly where images are few, else estimated with random signs."""
        variances = variances.to(self.dtype)
        if self.spectrum is not None:
            return self.spectrum.inverse_diagonal(variances.reciprocal())
        if self.mixture.n <= _DENSE and self.mixture.n * len(self.noise) <= _DENSE_NUMBERS:
            return self._dense_uncertainty(variances)
        return self._probed_uncertainty(variances)

    def _dense_uncertainty(self, variances: Tensor) -> Tensor:
        each = torch.eye(self.mixture.n, dtype=self.dtype, device=self.noise.device)
        rows = self.down @ each
        precision = self._precision(variances).expand(-1, len(variances))
        shared = precision.stride(1) == 0
        normal = self.up @ (precision[:, :1] * rows)
        found = []
        for column, variance in enumerate(variances):
            if not shared:
                normal = self.up @ (precision[:, column : column + 1] * rows)
            factor = torch.linalg.cholesky(normal + each / variance)
            found.append(torch.cholesky_inverse(factor).diagonal())
        return torch.stack(found, 1)

    def _probed_uncertainty(self, variances: Tensor) -> Tensor:
        """Hutchinson's estimate: exact in the mean over the signs.

        Wide of the mark where one nearly singular direction makes most of the error.
        """
        each = variances.repeat_interleave(_PROBES)
        generator = torch.Generator().manual_seed(0)
        shape = (self.mixture.n, len(each))
        probes = torch.randint(2, shape, generator=generator).to(self.noise.device, self.dtype)
        probes = probes * 2 - 1
        solved = self._solve(probes, self._precision(each), each)
        return (solved * probes).view(-1, len(variances), _PROBES).mean(2).clamp(min=0)

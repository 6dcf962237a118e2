"""Mixtures solved without a prior."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from harness.api.plugins import Progress, silent
from harness_plugins.mixtures.bags import Bags
from harness_plugins.mixtures.conjugate import conjugate_gradients
from harness_plugins.mixtures.rings import Rings
from harness_plugins.mixtures.systems import ring_neighbours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture

_WORKING = 400 * 2**20
_CHUNK = 512
"""Rows that are in memory at a time while a ring is walked."""
_LARGEST = 1e150
"""Products of ratios along a ring stop here: what they multiply is lost long before."""
_FACTORED = 3000
"""Rows up to which a sparse LU is cheap: the factors of a random mixture are dense."""
_TOLERANCE, _STEPS = 1e-10, 3000


@dataclass(frozen=True)
class Inverted:
    """`values` [n, d], and what is to be said of how they were found."""

    values: Tensor
    diagnostics: Mapping[str, float] = field(default_factory=dict)


def invert(
    mixture: Mixture,
    rows: Tensor,
    report: Progress = silent,
    out: Tensor | None = None,
) -> Inverted:
    """X of W X = rows [rows, d], solved in float64 and given in the rows' own type."""
    values = rows.new_empty(mixture.n, rows.shape[1]) if out is None else out
    precise = torch.float32 if rows.device.type == "mps" else torch.float64
    if mixture.following is not None:
        Walk.along(mixture, mixture.following, precise).invert(rows, values, report)
        return Inverted(values)
    solver = _solver(mixture, precise)
    width = max(1, _WORKING // (solver.bytes * max(len(rows), 1)))
    for start in range(0, rows.shape[1], width):
        block = slice(start, start + width)
        values[:, block] = solver.solve(rows[:, block]).to(values.dtype)
        report(min(start + width, rows.shape[1]), rows.shape[1])
    return Inverted(values, solver.diagnostics)


def _solver(mixture: Mixture, dtype: torch.dtype) -> Factorised | LeastSquares:
    square = len(mixture.sources) == mixture.n <= _FACTORED
    if square and mixture.sources.device.type == "cpu":
        return Factorised(mixture)
    return LeastSquares(mixture, dtype)


@dataclass(frozen=True)
class Walk:
    """Pairs of one round: elimination along rings, from the side where errors die out.

    In the rings' order: `rows` and `images` [n], and x_i + ratio_i x_next(i) = row_i / scale_i.
    The first image of a ring is a sum over all of its rows; each other follows from the next. One
    step is a whole row, and the release is read twice and the answer written once, whatever n.
    """

    rings: Rings
    rows: Tensor
    images: Tensor
    scale: Tensor
    ratio: Tensor

    @classmethod
    def along(cls, mixture: Mixture, following: Tensor, dtype: torch.dtype) -> Walk:
        """Each ring in the direction in which the product of its ratios is at most 1."""
        rings, order = Rings.of(following)
        own, _ = ring_neighbours(mixture, order, following)
        weights = mixture.weights.to(dtype).clamp(min=torch.finfo(dtype).tiny)
        turned, rows, images = _turned(rings, order, own, weights[own])
        there = weights[rows]
        first, second = torch.where(turned.view(-1, 1), there.flip(1), there).unbind(1)
        return cls(rings, rows, images, first, second / first)

    def invert(self, rows: Tensor, out: Tensor, report: Progress) -> None:
        """X [n, d] of rows [n, d], into `out`."""
        start = 0
        for length in self.rings.lengths.tolist():
            ring = torch.arange(start, start + length, device=rows.device)
            self._follow(rows, out, ring, self._first(rows, ring))
            start += length
            report(start, len(self.rows))

    def _first(self, rows: Tensor, ring: Tensor) -> Tensor:
        """[d]: the ring's first image, (Σ_s Π_{m<s} (-ratio_m) row_s / scale_s) / (1 - Π)."""
        products = self.ratio[ring].neg().cumprod(0).clamp(-_LARGEST, _LARGEST)
        before = torch.cat([torch.ones_like(products[:1]), products[:-1]])
        total = self.scale.new_zeros(rows.shape[1])
        for chunk, factor in zip(ring.split(_CHUNK), before.split(_CHUNK), strict=True):
            total += factor @ self._scaled(rows, chunk)
        determinant = 1 - products[-1]
        tiny = torch.finfo(determinant.dtype).eps
        away = determinant.abs().clamp(min=tiny)  # a singular ring has no answer, and no infinity
        return total / torch.where(determinant < 0, -away, away)

    def _follow(self, rows: Tensor, out: Tensor, ring: Tensor, first: Tensor) -> None:
        """From the first image back round the ring: each is its row less what the next leaves."""
        after = first
        for chunk in reversed(ring.split(_CHUNK)):
            found = self._scaled(rows, chunk)
            ratios = self.ratio[chunk].tolist()
            for image, ratio in zip(reversed(found.unbind(0)), reversed(ratios), strict=True):
                after = image.sub_(after, alpha=ratio)
            out.index_copy_(0, self.images[chunk], found.to(out.dtype))

    def _scaled(self, rows: Tensor, chunk: Tensor) -> Tensor:
        """[few, d] of row_i / scale_i."""
        held = rows.index_select(0, self.rows[chunk]).to(self.scale.dtype)
        return held.div_(self.scale[chunk].view(-1, 1))


def _turned(
    rings: Rings, order: Tensor, own: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Which places lie in turned rings [n], and the rows and images in their order then.

    Along a turned ring, row j of images (i, next) gives next + (w_i / w_next) i: the images come
    in the other direction, each with the row that it was second in.
    """
    ring = torch.repeat_interleave(rings.lengths)
    logs = (weights[:, 1] / weights[:, 0]).log().double()
    total = torch.zeros(len(rings.lengths), dtype=torch.float64, device=order.device)
    total.index_add_(0, ring, logs)
    turned = (total > 0)[ring]
    starts = (rings.lengths.cumsum(0) - rings.lengths)[ring]
    lengths, place = rings.lengths[ring], torch.arange(len(order), device=order.device) - starts
    back = starts + (lengths - place) % lengths
    before = starts + (lengths - place - 1) % lengths
    images = torch.where(turned, order[back], order)
    return turned, torch.where(turned, own[before], own), images


class Factorised:
    """A square mixture of any k, by sparse LU."""

    bytes = 24

    def __init__(self, mixture: Mixture) -> None:
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import splu

        rows, k = mixture.sources.shape
        at = torch.arange(rows).repeat_interleave(k).numpy()
        entries = (mixture.weights.double().flatten().numpy(), (at, mixture.sources.flatten()))
        self.factors = splu(csc_matrix(entries, shape=(rows, rows)))
        self.diagnostics = {"factor_entries": float(self.factors.nnz)}

    def solve(self, rows: Tensor) -> Tensor:
        """[n, B]."""
        return torch.from_numpy(self.factors.solve(rows.double().numpy()))


class LeastSquares:
    """Any rows of any mixture: WᵀW X = Wᵀ rows."""

    bytes = 64

    def __init__(self, mixture: Mixture, dtype: torch.dtype) -> None:
        self.diagnostics: dict[str, float] = {"cg_steps": 0.0, "cg_residual": 0.0}
        self.mixture = replace(mixture, weights=mixture.weights.to(dtype))
        self.dtype = dtype
        gram = self.mixture.gram()
        self.gram = Bags.of(*gram.indices(), gram.values(), mixture.n)
        squares = self.mixture.weights.square().flatten()
        self.diagonal = squares.new_zeros(mixture.n)
        self.diagonal.index_add_(0, mixture.sources.flatten(), squares)

    def solve(self, rows: Tensor) -> Tensor:
        """[n, B], the least squares answer from zero."""
        right = self.mixture.gather(rows.to(self.dtype))
        diagonal = self.diagonal.clamp(min=torch.finfo(self.dtype).eps).view(-1, 1)
        solved = conjugate_gradients(
            lambda x: self.gram @ x,
            diagonal.expand_as(right),
            right,
            tolerance=_TOLERANCE,
            steps=_STEPS,
        )
        kept = self.diagnostics
        kept["cg_steps"] = max(kept["cg_steps"], float(solved.steps))
        kept["cg_residual"] = max(kept["cg_residual"], solved.residual)
        return solved.values

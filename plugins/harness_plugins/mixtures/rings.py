"""Systems along the cycles of a permutation, solved for many columns at once.

A release of pairs, x~_i = a_i x_i + b_i x_next(i), joins the images into rings. Every second
image of each ring is eliminated, then every second of those left, and so on: as many steps as
the logarithm of the longest ring, each one operation on all rings and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


_FEW = 2**20
"""Numbers of a block of columns: what solving takes then stays near the processor, and memory is
used again instead of asked for again."""
_LEAST = 16


@dataclass(frozen=True)
class Level:
    """One step: the images that go, and their neighbours that stay."""

    gone: Tensor
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Rings:
    """n images in the order of their rings, which have `lengths` [rings] int64."""

    lengths: Tensor

    @classmethod
    def of(cls, following: Tensor) -> tuple[Rings, Tensor]:
        """The rings of a permutation [n] int64, and the images in their order [n]."""
        order, lengths = _walk(following.tolist())
        device = following.device
        rings = cls(torch.tensor(lengths, dtype=torch.int64, device=device))
        return rings, torch.tensor(order, dtype=torch.int64, device=device)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The steps of the elimination."""
        return tuple(self._eliminate())

    def _eliminate(self) -> Iterator[Level]:
        """A ring of one is left alone; of the others, those in odd places go."""
        starts = self.lengths.cumsum(0) - self.lengths
        left = torch.arange(int(self.lengths.sum()), device=self.lengths.device)
        lengths = self.lengths
        while int(lengths.max()) > 1:
            ring = torch.repeat_interleave(lengths)
            place = torch.arange(len(left), device=left.device) - starts[ring]
            goes = place % 2 == 1
            last = place + 1 == lengths[ring]
            at = goes.nonzero().squeeze(1)
            after = torch.where(last[at], starts[ring[at]], at + 1)
            yield Level(left[at], left[at - 1], left[after])
            left, lengths = left[~goes], (lengths + 1) // 2
            starts = lengths.cumsum(0) - lengths

    def slices(self, columns: int) -> Iterator[slice]:
        """Columns 0..columns-1, a few at a time."""
        width = max(_LEAST, _FEW // max(1, int(self.lengths.sum())))
        return (slice(start, start + width) for start in range(0, columns, width))

    @property
    def roots(self) -> Tensor:
        """The image of each ring that is left at the end: its first."""
        return self.lengths.cumsum(0) - self.lengths


def _walk(following: list[int]) -> tuple[list[int], list[int]]:
    order: list[int] = []
    lengths: list[int] = []
    seen = bytearray(len(following))
    for start in range(len(following)):
        if seen[start]:
            continue
        row, before = start, len(order)
        while not seen[row]:
            seen[row] = 1
            order.append(row)
            row = following[row]
        lengths.append(len(order) - before)
    return order, lengths


class Symmetric:
    """A positive definite matrix on rings, factorised for each of B columns.

    `diagonal` [n, B] and `coupling` [n] or [n, B], of each image with the one after it; a ring
    of one couples with itself, so that its coupling counts twice. Elimination is a Cholesky
    factorisation in another order, and as stable.
    """

    def __init__(self, rings: Rings, diagonal: Tensor, coupling: Tensor) -> None:
        self.rings = rings
        left = diagonal.clone()
        along = coupling.view(len(left), -1).expand_as(left).clone()
        self._steps = [_step(level, left, along) for level in rings.levels]
        self._roots = (left[rings.roots] + 2 * along[rings.roots]).reciprocal()

    def solve(self, right: Tensor) -> Tensor:
        """[n, B]: what the matrix maps to `right` [n, B], which is overwritten."""
        for level, step in zip(self.rings.levels, self._steps, strict=True):
            gone = right[level.gone]
            right.index_add_(0, level.before, gone * step.before, alpha=-1)
            right.index_add_(0, level.after, gone * step.after, alpha=-1)
        right[self.rings.roots] *= self._roots
        for level, step in zip(self.rings.levels[::-1], self._steps[::-1], strict=True):
            found = right[level.gone] * step.inverse
            found -= step.before * right[level.before]
            found -= step.after * right[level.after]
            right[level.gone] = found
        return right

    def inverse_diagonal(self) -> Tensor:
        """[n, B]: the diagonal of the inverse, by going back through the elimination."""
        n, columns = int(self.rings.lengths.sum()), self._roots.shape[1]
        variance = self._roots.new_zeros(n, columns)
        beside = torch.zeros_like(variance)  # covariance with the next one that is left
        variance[self.rings.roots] = self._roots
        beside[self.rings.roots] = self._roots
        for level, step in zip(self.rings.levels[::-1], self._steps[::-1], strict=True):
            across = beside[level.before]
            first = -step.before * variance[level.before] - step.after * across
            second = -step.before * across - step.after * variance[level.after]
            variance[level.gone] = step.inverse - step.before * first - step.after * second
            beside[level.before] = first
            beside[level.gone] = second
        return variance


@dataclass(frozen=True)
class _Step:
    """What one level of the elimination did: 1/pivot, and the couplings over the pivot."""

    inverse: Tensor
    before: Tensor
    after: Tensor


def _step(level: Level, diagonal: Tensor, along: Tensor) -> _Step:
    inverse = diagonal[level.gone].reciprocal()
    towards, onwards = along[level.before], along[level.gone]
    before, after = towards * inverse, onwards * inverse
    diagonal.index_add_(0, level.before, towards * before, alpha=-1)
    diagonal.index_add_(0, level.after, onwards * after, alpha=-1)
    along[level.before] = -before * onwards
    return _Step(inverse, before, after)

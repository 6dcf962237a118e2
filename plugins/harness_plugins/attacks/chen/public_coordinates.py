"""Which of a list of public vectors are in an encoding (Chen et al., the first step)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixing import mix

if TYPE_CHECKING:
    from torch import Tensor

_CANDIDATES = 30
"""Public vectors that are looked at together; the paper takes all, of which chance makes noise."""
_NUMBERS = 2**23  # in memory at a time
_TINY = 1e-12


@dataclass(frozen=True)
class Publics:
    """Public vectors in m encodings: `names` [m, q] in the `pool` [s, d], and `weights` [m, q]."""

    pool: Tensor
    names: Tensor
    weights: Tensor

    @cached_property
    def mixed(self) -> Tensor:
        """[m, d] what they add to the mixtures."""
        return mix(self.pool, self.names, self.weights)

    def gram(self) -> Tensor:
        """W W' [m, m] of their weights alone."""
        rows, s = len(self.names), len(self.pool)
        dense = self.weights.new_zeros(rows, s).scatter_add_(1, self.names, self.weights)
        return dense @ dense.T

    def read_again(self, rest: Tensor) -> Publics:
        """Off mixtures [m, d] with their signs, less all that is private: the nearest, in turn.

        What one vector explains is taken away before the next is looked for.
        """
        total = self.weights.sum(1, keepdim=True)
        names = torch.empty_like(self.names)
        left = rest
        for place in range(names.shape[1]):
            names[:, place] = self._nearest(left)
            told = names[:, : place + 1]
            weights = _weights(rest, self.pool, told)
            left = rest - mix(self.pool, told, weights)
        return Publics(self.pool, names, _summing_to(weights, total))

    def _nearest(self, rows: Tensor) -> Tensor:
        """[m] the vector that has the largest product with each of the rows [m, d]."""
        step = max(1, _NUMBERS // len(self.pool))
        return torch.cat([(part @ self.pool.T).argmax(1) for part in rows.split(step)])


def public_coordinates(seen: Tensor, pool: Tensor, count: int, total: Tensor) -> Publics:
    """The `count` vectors of the pool [s, d] in each encoding, whose weights have the sum `total`.

    `seen` [m, d] are absolute values of encodings, the pool's vectors standard normal, `total`
    [m, 1]. N = (1/d) sum_j x~_j^2 (p_j p_j' - I) has the expectation 2 w w', w the public
    weights: its top eigenvector tells them. N is made of the vectors alone that are largest on
    its diagonal, 2 w^2 and noise of their own: of all s, noise grows as the root of s / d.
    """
    count = min(count, len(pool))
    step = max(1, _NUMBERS // (_CANDIDATES * pool.shape[1]))
    parts = [_of_block(block, pool, count) for block in seen.split(step)]
    names, weights = (torch.cat(each) for each in zip(*parts, strict=True))
    return Publics(pool, names, _summing_to(weights, total))


def _of_block(seen: Tensor, pool: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[b, count] names, and weights but for their size."""
    squares = seen.square()
    level = squares.mean(1, keepdim=True)
    diagonal = _scored(squares, pool) / pool.shape[1] - level
    few = diagonal.topk(max(count, min(_CANDIDATES, len(pool))), dim=1).indices
    among = pool[few]
    matrix = (among * squares.unsqueeze(1)) @ among.transpose(1, 2) / pool.shape[1]
    matrix -= torch.diag_embed(level.expand(-1, few.shape[1]))
    vector = torch.linalg.eigh(matrix).eigenvectors[:, :, -1]
    vector = vector * torch.where(vector.sum(1, keepdim=True) < 0, -1.0, 1.0)
    best = vector.topk(count, dim=1)
    return few.gather(1, best.indices), best.values


def _scored(squares: Tensor, pool: Tensor) -> Tensor:
    """[b, s] sum_j x~_j^2 p_j^2, without the squares of all the pool at once."""
    step = max(1, _NUMBERS // pool.shape[1])
    return torch.cat([squares @ part.square().T for part in pool.split(step)], 1)


def _weights(rows: Tensor, pool: Tensor, names: Tensor) -> Tensor:
    """[m, q] least squares of rows [m, d] on the named vectors."""
    step = max(1, _NUMBERS // (names.shape[1] * pool.shape[1]))
    found = []
    for row, name in zip(rows.split(step), names.split(step), strict=True):
        among = pool[name]
        square = among @ among.transpose(1, 2)
        level = square.diagonal(dim1=1, dim2=2).amax(1).clamp(min=_TINY)
        square = square + torch.diag_embed(level.view(-1, 1).expand_as(name) * 1e-6)
        found.append(torch.linalg.solve(square, among @ row.unsqueeze(2)).squeeze(2))
    return torch.cat(found)


def _summing_to(weights: Tensor, total: Tensor) -> Tensor:
    """Weights [m, q] without negative ones, scaled to a sum [m, 1]."""
    kept = weights.clamp(min=_TINY)
    return kept * (total / kept.sum(1, keepdim=True))

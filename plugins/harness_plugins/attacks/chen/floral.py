"""Floral submatrices: encodings of all k-subsets of k+2 images (Chen et al., definition 3.6 on).

For k > 2 the sizes of their intersections tell which images they hold, but for the images' names.
The other encodings' intersections with such a block tell which of its k+2 images are in them.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_VISITS = 20_000
"""Partial blocks that are looked at from one encoding, and then no more."""

_WRONG = 0.05
"""Share of the encodings that may contradict a block: some intersections are judged wrongly."""


def subsets(k: int) -> Tensor:
    """[C(k+2, k), k+2] 0 and 1: all k-subsets of k+2 images."""
    rows = [[float(i in chosen) for i in range(k + 2)] for chosen in combinations(range(k + 2), k)]
    return torch.tensor(rows)


def floral_factor(shared: Tensor, k: int, most: int) -> Tensor:
    """[m, q] bool: which encodings each of q <= `most` images is in.

    `shared` [m, m] int64 says how many images two encodings have in common.
    """
    columns: list[Tensor] = []
    for row in range(len(shared)):
        held = torch.stack(columns).sum(0) if columns else shared.new_zeros(len(shared))
        if len(columns) >= most:
            break
        block = find_floral(shared, k, row) if int(held[row]) < k else None
        if block is None:
            continue
        for column in _read(shared, block, k):
            if len(columns) < most and not any(bool((column == own).all()) for own in columns):
                columns.append(column)
    return torch.stack(columns, 1) if columns else shared.new_zeros(len(shared), 0).bool()


def find_floral(shared: Tensor, k: int, first: int) -> list[int] | None:
    """Encodings that hold the `subsets` of some k+2 images, in order, from the `first` one on."""
    pattern = (subsets(k) @ subsets(k).T).long().tolist()
    visits = 0

    def grown(block: list[int], fitting: Tensor) -> list[int] | None:
        nonlocal visits
        if len(block) == len(pattern):
            return block
        wanted = pattern[len(block)]
        for row in fitting.nonzero().squeeze(1).tolist():
            if any(int(shared[row, own]) != wanted[i] for i, own in enumerate(block)):
                continue
            visits += 1
            if visits > _VISITS:
                return None
            rest = fitting.clone()
            rest[row] = False
            found = grown([*block, row], rest)
            if found is not None:
                return found
        return None

    fitting = (shared[first] >= k - 2) & (shared[first] < k)
    return grown([first], fitting)


def _read(shared: Tensor, block: list[int], k: int) -> list[Tensor]:
    """Columns [m] bool of the block's images, where every encoding agrees with them."""
    held = subsets(k).double()
    exact = torch.linalg.pinv(held) @ shared[block].double()
    rounded = exact.round().clamp(0, 1)
    wrong = ((held @ rounded) - shared[block]).abs().amax(0) > 0.5
    if float(wrong.double().mean()) > _WRONG:
        return []
    return list(rounded.bool())

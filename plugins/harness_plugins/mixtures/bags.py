"""Sparse matrices times dense ones: each row a weighted sum of a few others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import embedding_bag

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Bags:
    """A sparse [m, n] matrix by rows: `starts` [m+1] into `columns` and `values` [entries].

    Each row is summed by one thread in the order of its entries: the same bits on any number of
    threads.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, values: Tensor, count: int) -> Bags:
        """From entries [entries] in any order, for `count` rows."""
        order = rows.argsort(stable=True)
        each = torch.arange(count + 1, device=rows.device)
        starts = torch.searchsorted(rows[order].contiguous(), each)
        return cls(starts, columns[order], values[order])

    def __matmul__(self, dense: Tensor) -> Tensor:
        """[m, B] of dense [n, B] of the values' type."""
        return embedding_bag(
            self.columns,
            dense,
            self.starts,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def squared(self) -> Bags:
        """Every entry squared."""
        return Bags(self.starts, self.columns, self.values.square())

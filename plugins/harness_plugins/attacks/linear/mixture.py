"""The mixture as normal equations: WᵀW and WᵀX~, never a dense matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """W [rows, n] of all rounds, sparse: `sources` and `weights` [rows, k].

    Rows of T rounds are simply more rows. Public images in a mixture are noise to this attack:
    their weights are zero here.
    """

    sources: Tensor
    weights: Tensor
    n: int

    @classmethod
    def of(cls, weights: Tensor, sources: Tensor, n: int) -> Mixture:
        """From weights and sources [rounds, rows, k], of n private images."""
        private = sources < n
        kept = torch.where(private, weights, torch.zeros_like(weights))
        known = torch.where(private, sources, torch.zeros_like(sources))
        return cls(known.flatten(0, 1), kept.flatten(0, 1), n)

    def apply(self, images: Tensor) -> Tensor:
        """W X [rows, d] of images [n, d]."""
        mixed = images.new_zeros(len(self.sources), images.shape[1])
        for source, weight in zip(self.sources.T, self.weights.T, strict=True):
            mixed.addcmul_(images[source], weight.view(-1, 1))
        return mixed

    def gather(self, rows: Tensor) -> Tensor:
        """Wᵀ R [n, d] of rows [rows, d]."""
        gathered = rows.new_zeros(self.n, rows.shape[1])
        for source, weight in zip(self.sources.T, self.weights.T, strict=True):
            gathered.index_add_(0, source, rows * weight.view(-1, 1))
        return gathered

    def gram(self) -> Tensor:
        """WᵀW [n, n], sparse: two images meet where an encoding holds both."""
        k = self.sources.shape[1]
        first = self.sources.repeat_interleave(k, 1).flatten()
        second = self.sources.repeat(1, k).flatten()
        products = (self.weights.unsqueeze(2) * self.weights.unsqueeze(1)).flatten()
        size = (self.n, self.n)
        pairs = torch.stack([first, second])
        return torch.sparse_coo_tensor(pairs, products, size, check_invariants=False).coalesce()

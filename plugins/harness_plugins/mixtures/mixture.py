"""The mixture as a sparse matrix: W and its normal equations, never dense."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """W [rows, n] of all rounds: `sources` and `weights` [rows, k] of the private images.

    Rows of T rounds are simply more rows. Public images of a mixture are noise to whoever does
    not have them: their `weights` are zero here, and stand in `public` [rows, k] instead.
    """

    sources: Tensor
    weights: Tensor
    public: Tensor
    n: int

    @classmethod
    def of(cls, weights: Tensor, sources: Tensor, n: int) -> Mixture:
        """From weights and sources [rounds, rows, k], of n private images."""
        private = sources < n
        zero = torch.zeros_like(weights)
        kept, public = torch.where(private, weights, zero), torch.where(private, zero, weights)
        known = torch.where(private, sources, torch.zeros_like(sources))
        return cls(known.flatten(0, 1), kept.flatten(0, 1), public.flatten(0, 1), n)

    def to(self, device: torch.device | str) -> Mixture:
        """The same on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("sources", "weights", "public")}
        return replace(self, **moved)

    def cpu(self) -> Mixture:
        """The same on the CPU."""
        return self.to("cpu")

    @property
    def total(self) -> Tensor:
        """[rows] sum of all weights, of public images too."""
        return (self.weights + self.public).sum(1)

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

    @cached_property
    def following(self) -> Tensor | None:
        """[n] the partner of each image, where every row is one of n and a partner; else None.

        Then the images lie on rings: each is the first image of one row and the second of one.
        """
        if self.sources.shape != (self.n, 2) or bool(self.public.any()):
            return None
        each = torch.arange(self.n, device=self.sources.device)
        own, partner = self.sources.unbind(1)
        if not all(bool((column.sort().values == each).all()) for column in (own, partner)):
            return None
        return partner[own.argsort()]

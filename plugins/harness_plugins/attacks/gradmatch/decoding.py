"""From the inputs of mixed batches to the images in them: weights and sources are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream
    from harness_plugins.mixtures.mixture import Mixture

MOST_VALUES = 4_000_000
"""Of images, or of rows, that are worked on at a time."""
STARTS = 16
SPREADS = torch.linspace(0, 1, STARTS)
"""Deviations of the starts about the mean."""


@dataclass(frozen=True)
class Decoder:
    """Least squares on rows = W X (or on absolute values), drawn to `mean` [d] by `ridge`.

    The ridge is a share of the squared weight of an image in one row.
    """

    mixture: Mixture
    mean: Tensor
    ridge: float

    def signed(self, rows: Tensor) -> Tensor:
        """argmin_X ‖R − W X‖² + ridge ‖X − mean‖², X [n, d], in closed form."""
        centre = self.mean.expand(self.mixture.n, -1)
        pull = self.mixture.gather(rows - self.mixture.apply(centre))
        return centre + torch.linalg.solve(self._system(rows), pull)

    def folded(self, rows: Tensor, steps: int, stream: Stream) -> Tensor:
        """argmin_X ‖|R| − |W X|‖² + ridge ‖X − mean‖², with signs and images in turn.

        Each value of an image is a problem of its own: of several starts the best counts, and of
        X and −X, which fit alike, the one nearer the mean.
        """
        mixed, solve = _dense(self.mixture).to(rows), torch.linalg.inv(self._system(rows))
        width = max(1, MOST_VALUES // (STARTS * max(mixed.shape)))
        parts = zip(rows.split(width, 1), self.mean.split(width), strict=True)
        found = [
            self._turns(part, mean, mixed, solve, steps, stream.stream(part=number))
            for number, (part, mean) in enumerate(parts)
        ]
        return torch.cat(found, 1)

    def _turns(
        self, rows: Tensor, mean: Tensor, mixed: Tensor, solve: Tensor, steps: int, stream: Stream
    ) -> Tensor:
        """The same for some of the values: rows [r, w], their `mean` [w]."""
        size = rows.abs().repeat(1, STARTS)
        centre = mean.repeat(STARTS).expand(self.mixture.n, -1)
        spread = SPREADS.to(rows).repeat_interleave(rows.shape[1])
        images = centre + spread * stream.normal(*centre.shape).to(rows)
        for _ in range(steps):
            signed = size.copysign(mixed @ images)
            images = centre + solve @ (mixed.T @ (signed - mixed @ centre))
        return self._best(images, size, mixed, centre)

    def _best(self, images: Tensor, size: Tensor, mixed: Tensor, centre: Tensor) -> Tensor:
        """[n, d]: of images [n, starts·d] those that fit best, value by value."""
        misfit = ((mixed @ images).abs() - size).square().sum(0)
        apart, mirrored = ((sign * images - centre).square().sum(0) for sign in (1, -1))
        images = torch.where(mirrored < apart, -images, images)
        loss = (misfit + self.ridge * apart.minimum(mirrored)).view(STARTS, -1)
        parts = images.view(len(images), STARTS, -1)
        return parts.gather(1, loss.argmin(0).expand(len(images), 1, -1)).squeeze(1)

    def _system(self, like: Tensor) -> Tensor:
        """WᵀW + ridge [n, n]."""
        own = torch.eye(self.mixture.n, device=like.device, dtype=like.dtype)
        return self.mixture.gram().to_dense().to(like) + self.ridge * own


def _dense(mixture: Mixture) -> Tensor:
    """W [rows, n]."""
    dense = mixture.weights.new_zeros(len(mixture.sources), mixture.n)
    return dense.scatter_add_(1, mixture.sources, mixture.weights)

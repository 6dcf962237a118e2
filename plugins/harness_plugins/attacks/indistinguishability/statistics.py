"""The seven statistics of InstaHide's table 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

LOCATIONS = 4
NAMES = ("mean", "deviation", "total_variation", *(f"location_{i + 1}" for i in range(LOCATIONS)))


def statistics_of(images: Tensor, places: Tensor) -> Tensor:
    """[7, n] of encodings [n, c, h, w]; `places` [4] are the numbers whose values are taken."""
    flat = images.flatten(1)
    spread, mean = torch.std_mean(flat, 1, correction=0)
    return torch.stack([mean, spread, _total_variation(images), *flat[:, places].T])


def _total_variation(images: Tensor) -> Tensor:
    """Σ |differences of neighbours|, down and across."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).sum(1)
    across = (images[..., 1:] - images[..., :-1]).abs().flatten(1).sum(1)
    return down + across

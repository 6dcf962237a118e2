"""A dense layer whose rows answer to images above a brightness each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BrightnessBins(nn.Module):
    """x + s Σ_i relu(mean(x) - c_i + w_i·x + b_i), for images of `values` numbers.

    All rows have the same derivative wherever they answer, because nothing behind them tells them
    apart; what rows i and i + 1 get differs by the images between c_i and c_(i+1) alone. Weights
    and biases start at zero, so that however little a step adds to them is not rounded away.
    """

    def __init__(self, values: int, edges: Sequence[float], strength: float) -> None:
        super().__init__()
        self.rows = nn.Linear(values, len(edges))
        nn.init.zeros_(self.rows.weight)
        nn.init.zeros_(self.rows.bias)
        self.edges: Tensor
        self.register_buffer("edges", torch.tensor(edges))
        self.strength = strength

    def forward(self, images: Tensor) -> Tensor:
        """Images [b, *shape] with what the rows add."""
        flat = images.flatten(1)
        above = torch.relu(flat.mean(1, keepdim=True) - self.edges + self.rows(flat))
        added: Tensor = self.strength * above.sum(1)
        return images + added.view(-1, *(1,) * (images.ndim - 1))

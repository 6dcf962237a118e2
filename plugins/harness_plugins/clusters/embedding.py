"""Encodings as points on a sphere: near where they hold an image in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import normalize

from harness_plugins.clusters import PAIRS
from harness_plugins.networks.convolutions import convolutions

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

_WIDTHS = ((32, 1), (64, 2), (128, 2), (128, 2))
_EMBEDDING = 256
_BLOCK = 512


class PairNetwork(nn.Module):
    """Samples of `shape` (c, h, w) to unit vectors of 256 values."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers, values = convolutions(shape, _WIDTHS)
        self.last = nn.Linear(values, _EMBEDDING)
        self.sharpness = nn.Parameter(torch.tensor(2.5))

    def forward(self, seen: Tensor) -> Tensor:
        """[m, 256] of what masks leave [m, c, h, w]."""
        return normalize(self.last(self.layers(seen)))


@dataclass(frozen=True)
class Embedder:
    """The trained network, and the `centre` and `spread` of what it is shown.

    `exam` is the AUC of pairs of held-out public images.
    """

    network: PairNetwork
    centre: Tensor
    spread: Tensor
    exam: float

    @classmethod
    def of(cls, view: View) -> Embedder:
        """What the preparation made."""
        return cls.restore(view.made(PAIRS.name), view.shape)

    @classmethod
    def restore(cls, kept: Mapping[str, Tensor], shape: tuple[int, ...]) -> Embedder:
        """From what `learn` returned."""
        network = PairNetwork(shape).to(kept["centre"].device)
        network.load_state_dict(
            {name[4:]: value for name, value in kept.items() if name.startswith("net.")}
        )
        network.eval()
        return cls(network, kept["centre"], kept["spread"], float(kept["exam"]))

    @torch.no_grad()
    def places(self, seen: Tensor) -> Tensor:
        """[m, 256] unit vectors of what masks leave [m, *shape]."""
        blocks = ((block - self.centre) / self.spread for block in seen.split(_BLOCK))
        return torch.cat([self.network(block) for block in blocks])


def nearest(places: Tensor, count: int, block: int = 1024) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of (scores, rows) [b, count]: of each place the nearest others, itself left out.

    Never more than `block` rows of the matrix of all pairs are in memory.
    """
    for start in range(0, len(places), block):
        scores = places[start : start + block] @ places.T
        own = torch.arange(len(scores), device=scores.device)
        scores[own, own + start] = -torch.inf
        found = scores.topk(min(count, len(places) - 1), dim=1)
        yield found.values, found.indices

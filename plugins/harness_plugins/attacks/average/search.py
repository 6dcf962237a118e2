"""Which encodings are alike: every one of round 0 against all others, as matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from harness_plugins.structural_similarity import ssim_of_pairs

if TYPE_CHECKING:
    from torch import Tensor

    Scores = Callable[[Tensor, Tensor], Tensor]

_BLOCK = 1 << 24  # scores at a time
_STRIDE = 4


def most_similar(rows: Tensor, asked: int, matches: int, scores: Scores) -> Tensor:
    """[asked, matches] int64: for each of the first `asked` rows [N, ...] the most similar others.

    `scores` compares rows [a, ...] with rows [N, ...] and gives [a, N].
    """
    matches = min(matches, len(rows) - 1)
    found = []
    for block in torch.arange(asked, device=rows.device).split(max(1, _BLOCK // len(rows))):
        likeness = scores(rows[block], rows)
        likeness[torch.arange(len(block), device=rows.device), block] = -torch.inf
        found.append(likeness.topk(matches, dim=1).indices)
    return torch.cat(found)


def cosine(some: Tensor, rows: Tensor) -> Tensor:
    """[a, N] cosines of vectors [a, d] and [N, d]."""
    return normalize(some) @ normalize(rows).T


def ssim(some: Tensor, rows: Tensor) -> Tensor:
    """[a, N] structural similarity of planes [a, c, h, w] and [N, c, h, w].

    Of windows four apart; values span what those of `rows` span.
    """
    span = (rows.max() - rows.min()).clamp(min=torch.finfo(rows.dtype).tiny)
    return torch.cat(list(ssim_of_pairs(some / span, rows / span, _STRIDE)))

"""Which encodings are alike: every one of round 0 against all others, as matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize, unfold

if TYPE_CHECKING:
    from torch import Tensor

    Scores = Callable[[Tensor, Tensor], Tensor]

_BLOCK = 1 << 24  # scores at a time
_WINDOW, _STRIDE = 8, 4
_K1, _K2 = 0.01, 0.03


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

    Means over windows of 8 by 8, four apart, of one channel each, equally weighed (Wang et al.
    2004, equation 13); the range is that of `rows`. Inside a window a covariance is an inner
    product, which makes all pairs a product of matrices.
    """
    reach = float(rows.max() - rows.min())
    low, high = (_K1 * reach) ** 2, (_K2 * reach) ** 2
    total = some.new_zeros(len(some), len(rows))
    windows = list(zip(_windows(some), _windows(rows), strict=True))
    for one, other in windows:
        means = one.mean(1, keepdim=True), other.mean(1, keepdim=True)
        first, second = one - means[0], other - means[1]
        spread = first.square().mean(1, keepdim=True) + second.square().mean(1)
        common = first @ second.T / one.shape[1]
        light = (2 * means[0] * means[1].T + low) / (means[0] ** 2 + means[1].T ** 2 + low)
        total += light * (2 * common + high) / (spread + high)
    return total / len(windows)


def _windows(planes: Tensor) -> Tensor:
    """[windows, n, pixels] of planes [n, c, h, w], channels apart; one window if they are small."""
    size = min(_WINDOW, *planes.shape[-2:])
    cut = unfold(planes, size, stride=min(_STRIDE, size))
    cut = cut.view(len(planes), planes.shape[1], size * size, -1)
    return cut.permute(1, 3, 0, 2).flatten(0, 1)

"""Images from encodings, by memberships and signs in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.clusters.membership import Membership

_FIRST, _LAST = 1.0, 0.1  # deviation that mixtures are allowed, first and last turn
_RIDGE = 1e-2  # of an image's own weight
_SURE = 12.0  # log-odds that count as certain


def solved(seen: Tensor, odds: Tensor, found: Membership, turns: int) -> Tensor:
    """Images [n, d] after so many turns, by least squares.

    `seen` [m, d] are absolute values of mixtures and `odds` [m, d] half the log-odds of their
    signs. A sign is as sure as guess and images so far make it: the more a mixture is away
    from zero by what is allowed, which falls.
    """
    mixed = found.dense()
    gram = mixed.T @ mixed
    gram += torch.diag(_RIDGE * gram.diagonal().clamp(min=1e-6))
    factor = torch.linalg.cholesky(gram)
    told, images = odds, seen.new_zeros(found.n, seen.shape[1])
    for turn in range(turns):
        if turn:
            told = _surer(seen, odds, mixed @ images, _allowed(turn, turns))
        images = torch.cholesky_solve(mixed.T @ (seen * told.tanh()), factor)
    return images


def _allowed(turn: int, turns: int) -> float:
    """Falling by equal factors, from the second turn on."""
    return _FIRST * (_LAST / _FIRST) ** ((turn - 1) / max(1, turns - 2))


def _surer(seen: Tensor, odds: Tensor, mixed: Tensor, allowed: float) -> Tensor:
    """Half of log p(+)/p(-) by the images, |m| (W X) / allowed^2, and what was guessed."""
    return mixed.mul_(seen).div_(allowed**2).add_(odds).clamp_(-_SURE, _SURE)

"""The Gram matrix of the mixing weights, from encodings alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import normalize

from harness_plugins.attacks.chen.folding import unfolded

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 512
SURE = 2.5
"""Deviations beyond which a correlation is taken for one: the paper rounds, which does the same."""


def correlations(rows: Tensor) -> Tensor:
    """[m, m] of rows [m, d], each centred; 0 on the diagonal."""
    units = normalize(rows - rows.mean(1, keepdim=True))
    found = units @ units.T
    return found.fill_diagonal_(0)


def chance(found: Tensor) -> float:
    """Deviation of the correlations of encodings that share nothing, from the negative ones.

    Weights are positive: no pair that shares an image has a negative correlation, but by chance.
    """
    energy, count = 0.0, 0
    for block in found.split(_BLOCK):
        below = block[block < 0]
        energy += float(below.square().sum())
        count += below.numel()
    deviation: float = (energy / max(1, count)) ** 0.5
    return deviation


def gram_of(found: Tensor, scales: Tensor, hidden: bool) -> Tensor:
    """W W' [m, m], in the place of correlations [m, m]; `scales` [m] are |w| of each row.

    Where signs are `hidden`, correlations are of absolute values and are unfolded. What chance
    explains counts as 0: the folded correlation begins as a square, which would lift chance.
    """
    least = SURE * chance(found)
    for start in range(0, len(found), _BLOCK):
        block = found[start : start + _BLOCK]
        kept = block >= least
        block[~kept] = 0
        if hidden:
            block[kept] = unfolded(block[kept])
        block *= scales[start : start + _BLOCK].view(-1, 1) * scales
    found.diagonal().copy_(scales.square())
    return found

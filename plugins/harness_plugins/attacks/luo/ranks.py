"""How well places tell pairs apart among encodings of one leading class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 400  # encodings of a class: 80 000 pairs


def pair_auc(places: Tensor, owner: Tensor, leading: Tensor) -> Tensor:
    """[] mean over classes: how often a pair of one image [m, e] scores above one of two."""
    values = [
        _auc(places[rows], owner[rows])
        for kind in leading.unique()
        for rows in [(leading == kind).nonzero().squeeze(1)[:_MOST]]
    ]
    known = torch.stack(values)
    known = known[~known.isnan()]
    return known.mean() if len(known) else torch.tensor(0.5)


def _auc(places: Tensor, owner: Tensor) -> Tensor:
    """[] of all pairs; NaN where there is but one kind of them."""
    from scipy.stats import rankdata

    upper = torch.ones(len(owner), len(owner), dtype=torch.bool, device=owner.device).triu(1)
    same = (owner.view(-1, 1) == owner)[upper]
    scores = (places @ places.T)[upper]
    ranks = torch.from_numpy(rankdata(scores.cpu().numpy()))[same.cpu()]
    true, false = int(same.sum()), int((~same).sum())
    if not true or not false:
        return torch.tensor(torch.nan)
    return ((ranks.sum() - true * (true + 1) / 2) / (true * false)).float()

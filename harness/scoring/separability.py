"""How far apart a victim's hidden representations lie: what MixCon and UniCon squeeze."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 1000
"""Images whose pairwise distances are measured, at most: a million pairs."""


def separability(hidden: Tensor, labels: Tensor) -> dict[str, float]:
    """Minimum, mean and maximum pairwise distance, within and across classes.

    `hidden` [n, ...] is h(x), brought to length one as in MixCon's loss (its footnote 3), so that
    networks compare; `labels` [n]. A kind of pair that does not occur is left out.
    """
    import torch

    rows = hidden[:LARGEST].flatten(1).double()
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    first, second = torch.triu_indices(len(rows), len(rows), offset=1)
    exact = "donot_use_mm_for_euclid_dist"  # products would round coincident points apart
    distances = torch.cdist(rows, rows, compute_mode=exact)[first, second]
    same = labels[:LARGEST][first] == labels[:LARGEST][second]
    kinds = {"within": distances[same], "across": distances[~same]}
    return {
        f"separability.{kind}.{name}": float(value)
        for kind, found in kinds.items()
        if len(found)
        for name, value in (("min", found.min()), ("mean", found.mean()), ("max", found.max()))
    }

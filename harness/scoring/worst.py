"""The worst case: for each image, the strongest of several attacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from harness.scoring.summary import Values

if TYPE_CHECKING:
    from torch import Tensor

BEST_OF_NULLS = "best_of_nulls"
"""The null of a worst case: the best of all nulls, image by image."""


def strongest(
    scores: Mapping[str, Tensor], leaks_more: Literal["higher", "lower"]
) -> tuple[Tensor, list[str]]:
    """The best score [n] of each image over attacks, NaN where none has one, and whose it is.

    The first of equals; "" where none has a score.
    """
    import torch

    names = list(scores)
    sign = 1 if leaks_more == "higher" else -1
    table = sign * torch.stack([scores[name].double() for name in names])
    best, index = table.nan_to_num(nan=-torch.inf).max(0)
    found = best > -torch.inf
    values = torch.where(found, sign * best, torch.nan)
    who = [
        names[i] if there else "" for i, there in zip(index.tolist(), found.tolist(), strict=True)
    ]
    return values, who


def worst_case(
    scores: Mapping[str, Tensor],
    nulls: Mapping[str, Tensor],
    leaks_more: Literal["higher", "lower"],
    unit: str,
    chance: float | None,
) -> Values:
    """One metric's worst case over attacks, beside the worst case over nulls.

    The maximum over attacks profits from luck, image by image; so does that over nulls.
    """
    best, _ = strongest(scores, leaks_more)
    null, _ = strongest(nulls, leaks_more)
    return Values(best.numpy(), {BEST_OF_NULLS: null.numpy()}, leaks_more, unit, chance)

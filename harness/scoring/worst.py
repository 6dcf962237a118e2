"""The worst case: for each image, the strongest of several attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from harness.scoring.summary import Values

if TYPE_CHECKING:
    from torch import Tensor

    Direction = Literal["higher", "lower"]

BEST_OF_NULLS = "best_of_nulls"
"""The null of a worst case: the best of all nulls, image by image, and of every attack's answer
to another image of the same class."""


def strongest(scores: Mapping[str, Tensor], leaks_more: Direction) -> tuple[Tensor, list[str]]:
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


def another_of_its_class(labels: Tensor) -> Tensor:
    """[n] int64: for each image another one of the same class, each one's once; itself if alone."""
    import torch

    others = torch.arange(len(labels))
    for label in range(int(labels.max()) + 1 if len(labels) else 0):
        members = (labels == label).nonzero().squeeze(1)
        others[members] = members.roll(1)
    return others


def worst_case(
    scores: Mapping[str, Tensor],
    nulls: Sequence[Tensor],
    leaks_more: Direction,
    unit: str,
    chance: float | None,
) -> Values:
    """One metric's worst case over attacks, beside the worst case over nulls.

    The maximum over many attacks is lucky somewhere. Answers to other images of the class have
    the same luck and say nothing of this one: among the `nulls` they keep the gain honest.
    """
    best, _ = strongest(scores, leaks_more)
    null, _ = strongest({str(i): each for i, each in enumerate(nulls)}, leaks_more)
    return Values(best.numpy(), {BEST_OF_NULLS: null.numpy()}, leaks_more, unit, chance)

"""Scores image by image, as records keep them, and the worst case over attacks made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.scoring.summary import Direction, MetricScore, Values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

DIGITS = 6
"""Significant digits that are kept: far finer than any interval."""

Column = tuple[float | None, ...]
"""A value for each target; None where it is undefined."""
BEST_OF_NULLS = "best_of_nulls"
"""The null of a worst case: the best of all nulls, image by image, and of every attack's answer
to another image of the same class."""


class ByImage(BaseModel):
    """One metric, image by image.

    `attack` is what the attack scores, `guess` the best of the nulls on each image, `misplaced`
    what the attack's answers score where each is given to another image of its class: as lucky
    as they are, and without knowledge. It is empty where the attack shows no images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    leaks_more: Direction
    unit: str = ""
    attack: Column
    guess: Column
    misplaced: Column = ()


def by_image(
    privacy: Mapping[str, MetricScore],
    attack: Mapping[str, Sequence[float]],
    guess: Mapping[str, Sequence[float]],
    misplaced: Mapping[str, Sequence[float]],
) -> dict[str, ByImage]:
    """What a record keeps of each metric that was scored; values [targets], NaN if undefined."""
    return {
        name: ByImage(
            leaks_more=privacy[name].leaks_more,
            unit=privacy[name].unit,
            attack=_column(values),
            guess=_column(guess[name]),
            misplaced=_column(misplaced.get(name, ())),
        )
        for name, values in attack.items()
    }


def _column(values: Sequence[float]) -> Column:
    return tuple(None if math.isnan(v) else float(f"{v:.{DIGITS}g}") for v in values)


def array(column: Column) -> NDArray[np.float64]:
    """[targets], NaN where undefined."""
    import numpy as np

    return np.array([np.nan if value is None else value for value in column], dtype=np.float64)


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

"""Scores image by image, as records keep them: what worst cases over attacks are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.scoring.summary import MetricScore

DIGITS = 6
"""Significant digits that are kept: far finer than any interval."""

Column = tuple[float | None, ...]
"""A value for each target; None where it is undefined."""


class ByImage(BaseModel):
    """One metric, image by image.

    `attack` is what the attack scores, `guess` the best of the nulls on each image, `misplaced`
    what the attack's answers score where each is given to another image of its class: as lucky
    as they are, and without knowledge. It is empty where the attack shows no images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    leaks_more: Literal["higher", "lower"]
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

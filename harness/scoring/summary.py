"""From one value per image to what the record and the tables say of a metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api import Stream
from harness.scoring.intervals import Interval, mean_intervals, proportion_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Direction = Literal["higher", "lower"]
"""Of which values more leaks."""
PROPORTION = "proportion"
"""The unit of metrics whose values are 0 or 1: their mean gets a Wilson interval."""


class MetricScore(BaseModel):
    """One metric over all targets; the numbers are None where it is `unavailable`.

    `worst` is the value of the image that leaks most, `worst_index` which target that is.
    `null` is the mean of the best null, `null_name` its name, `nulls` the means of all of them.
    `gain` is the mean over the best null, signed so that positive leaks more, whichever
    direction the metric has; `gain_ci` its paired 95% interval. `n` targets entered the means
    and `undefined` did not. `chance` is what blind choice reaches, where the metric knows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str = ""
    leaks_more: Direction = "higher"
    mean: float | None = None
    std: float | None = None
    ci: Interval | None = None
    median: float | None = None
    worst: float | None = None
    worst_index: int | None = None
    null: float | None = None
    null_name: str | None = None
    nulls: dict[str, float] = {}
    gain: float | None = None
    gain_ci: Interval | None = None
    n: int = 0
    undefined: int = 0
    chance: float | None = None
    unavailable: str | None = None


@dataclass(frozen=True)
class Values:
    """One metric's values [n] for the attack and for each null; NaN where undefined."""

    attack: NDArray[np.float64]
    nulls: Mapping[str, NDArray[np.float64]]
    leaks_more: Direction
    unit: str = ""
    chance: float | None = None

    @property
    def sign(self) -> int:
        """+1 where higher values leak more, else -1."""
        return 1 if self.leaks_more == "higher" else -1

    @property
    def defined(self) -> NDArray[np.bool_]:
        """[n]: where the attack and every null have a value, so that all means compare."""
        import numpy as np

        finite = [np.isfinite(column) for column in (self.attack, *self.nulls.values())]
        together: NDArray[np.bool_] = np.logical_and.reduce(finite, axis=0)
        return together


def best_null(values: Values) -> str:
    """The null whose mean leaks most over the targets; the first of equals."""
    return max(values.nulls, key=lambda name: values.sign * _mean(values, values.nulls[name]))


def summarise(metrics: Mapping[str, Values], stream: Stream) -> dict[str, MetricScore]:
    """Every metric's summary; one bootstrap over images serves all of them."""
    import numpy as np

    usable = {name: values for name, values in metrics.items() if values.defined.any()}
    columns = [column for values in usable.values() for column in _columns(values)]
    stacked = np.stack(columns, axis=1) if columns else np.empty((0, 0))
    intervals = mean_intervals(stacked, stream)
    pairs = dict(zip(usable, zip(intervals[::2], intervals[1::2], strict=True), strict=True))
    return {
        name: _score(values, *pairs[name]) if name in pairs else _undefined(values)
        for name, values in metrics.items()
    }


def _columns(values: Values) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[n] values and [n] gains over the best null, NaN where undefined."""
    import numpy as np

    gain = values.sign * (values.attack - values.nulls[best_null(values)])
    return np.where(values.defined, values.attack, np.nan), np.where(values.defined, gain, np.nan)


def _mean(values: Values, column: NDArray[np.float64]) -> float:
    return float(column[values.defined].mean())


def _undefined(values: Values) -> MetricScore:
    return MetricScore(
        unit=values.unit,
        leaks_more=values.leaks_more,
        undefined=len(values.attack),
        unavailable="undefined for every target",
    )


def _score(values: Values, ci: Interval | None, gain_ci: Interval | None) -> MetricScore:
    import numpy as np

    kept = values.attack[values.defined]
    n, name = len(kept), best_null(values)
    nulls = {null: _mean(values, column) for null, column in values.nulls.items()}
    worst = int(np.nanargmax(np.where(values.defined, values.sign * values.attack, np.nan)))
    if values.unit == PROPORTION:
        ci = proportion_interval(int(kept.sum()), n)
    return MetricScore(
        unit=values.unit,
        leaks_more=values.leaks_more,
        mean=float(kept.mean()),
        std=float(kept.std(ddof=1)) if n > 1 else 0.0,
        ci=ci,
        median=float(np.median(kept)),
        worst=float(values.attack[worst]),
        worst_index=worst,
        null=nulls[name],
        null_name=name,
        nulls=nulls,
        gain=values.sign * (float(kept.mean()) - nulls[name]),
        gain_ci=gain_ci,
        n=n,
        undefined=len(values.attack) - n,
        chance=values.chance,
    )

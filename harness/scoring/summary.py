"""From one value per image to what is said of a metric: means, how sure they are, worst cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api.randomness import Stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

Interval = tuple[float, float]

Direction = Literal["higher", "lower"]
"""Of which values more leaks."""

CONFIDENCE = 0.95
RESAMPLES = 2000
BATCH_VALUES = 2**21
"""Values of one batch of resamples: bounds memory."""


def mean_intervals(values: NDArray[np.float64], stream: Stream) -> list[Interval | None]:
    """95% percentile bootstrap intervals of each column's mean over images.

    `values` [n, k], NaN where undefined; every column sees the same 2000 resamples of images.
    None where there is no interval: fewer than two defined values, or so few that a resample
    may miss them all.
    """
    import warnings

    import numpy as np
    from scipy.stats import DegenerateDataWarning, bootstrap

    n, k = values.shape
    if n < 2 or k == 0:
        return [None] * k
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # NaN says the same
        result = bootstrap(
            (np.arange(n),),
            _resampled_means(values),
            n_resamples=RESAMPLES,
            batch=max(1, BATCH_VALUES // n),
            confidence_level=CONFIDENCE,
            method="percentile",
            vectorized=True,
            rng=np.random.default_rng(stream.seed()),
        )
    defined = n - np.isnan(values).sum(0)
    return [
        (float(low), float(high)) if count > 1 and not math.isnan(low + high) else None
        for low, high, count in zip(*result.confidence_interval, defined, strict=True)
    ]


def _resampled_means(values: NDArray[np.float64]) -> Callable[..., NDArray[np.float64]]:
    """The statistic: indices of images [..., n] to means over the defined values [k, ...].

    What is resampled are the images' indices. How often each is drawn, times the values, is the
    sum: one matrix product for all metrics, where gathering every column would take seconds.
    """
    import numpy as np

    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)

    def means(indices: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:  # noqa: ARG001
        rows = indices.reshape(-1, len(values)).astype(np.int64)
        offsets = np.arange(len(rows))[:, None] * len(values)
        drawn = np.bincount((rows + offsets).ravel(), minlength=rows.size).reshape(rows.shape)
        with np.errstate(invalid="ignore"):
            ratio = (drawn @ filled) / (drawn @ defined.astype(np.float64))
        result: NDArray[np.float64] = ratio.T.reshape(-1, *indices.shape[:-1])
        return result

    return means


def share_interval(shares: Sequence[float], n: int) -> Interval | None:
    """95% interval of the mean share of `n` images that one or more trainings named rightly.

    Of one training, Wilson's. Several are tried on the same images, so their spread says nothing
    of those: it is added in squares to Wilson's.
    """
    mean = sum(shares) / len(shares)
    images = proportion_interval(round(mean * n), n)
    if images is None or len(shares) == 1:
        return images
    reach = spread_reach(shares)
    low, high = (math.hypot(mean - end, reach) for end in images)
    return max(0.0, mean - low), min(1.0, mean + high)


def spread_reach(shares: Sequence[float]) -> float:
    """How far the mean of two or more independent shares may be off, at 95 %, by Student's t."""
    import numpy as np
    from scipy.stats import t

    count = len(shares)
    return float(t.ppf((1 + CONFIDENCE) / 2, count - 1) * np.std(shares, ddof=1) / count**0.5)


def proportion_interval(hits: int, n: int) -> Interval | None:
    """95% Wilson interval of a proportion."""
    from scipy.stats import binomtest

    if n == 0:
        return None
    interval = binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


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


OTHERS = "answers_to_others"
"""The null that an attack is to itself: its answers where other images of the class are true."""


def best_null(values: Values) -> str:
    """The null whose mean leaks most over the targets; the first of equals."""
    return max(values.nulls, key=lambda name: values.sign * _mean(values, values.nulls[name]))


def best_guess(values: Values) -> str:
    """The best of the nulls that are guesses, made without the attack; the first if none has any.

    Values are undefined everywhere where the targets have no energy.
    """
    guesses = {name: column for name, column in values.nulls.items() if name != OTHERS}
    here = replace(values, nulls=guesses)
    return best_null(here) if here.defined.any() else next(iter(guesses))


def summarise(metrics: Mapping[str, Values], stream: Stream) -> dict[str, MetricScore]:
    """Every metric's summary; one bootstrap over images serves all of them."""
    import numpy as np

    usable = {name: values for name, values in metrics.items() if values.defined.any()}
    columns = [column for values in usable.values() for column in _columns(values)]
    stacked = np.stack(columns, axis=1) if columns else np.empty((0, 0))
    intervals = mean_intervals(stacked, stream)
    pairs = dict(zip(usable, zip(intervals[::2], intervals[1::2], strict=True), strict=True))
    return {
        name: _score(values, *pairs[name])
        if name in pairs
        else MetricScore(
            unit=values.unit,
            leaks_more=values.leaks_more,
            undefined=len(values.attack),
            unavailable="undefined for every target",
        )
        for name, values in metrics.items()
    }


def _columns(values: Values) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[n] values and [n] gains over the best null, NaN where undefined."""
    import numpy as np

    gain = values.sign * (values.attack - values.nulls[best_null(values)])
    return np.where(values.defined, values.attack, np.nan), np.where(values.defined, gain, np.nan)


def _mean(values: Values, column: NDArray[np.float64]) -> float:
    return float(column[values.defined].mean())


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


DIGITS = 6
"""Significant digits that are kept: far finer than any interval."""

Column = tuple[float | None, ...]
"""A value for each target; None where it is undefined."""


class ByImage(BaseModel):
    """One metric, image by image.

    `attack` is what the attack scores, `guess` what the best guess without a release does, `nulls`
    what the other guesses do, by name, and `misplaced` what the attack's answers score where other
    images of the class are true, with as much help by matching: for each target, then again for
    each where others are drawn more often. It is empty where the attack shows no images. `easier`
    says of each of these how much easier to guess the target is than the other image; empty stands
    for not at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    leaks_more: Direction
    unit: str = ""
    attack: Column
    guess: Column
    nulls: dict[str, Column] = {}
    misplaced: Column = ()
    easier: Column = ()

    @property
    def draws(self) -> NDArray[np.float64]:
        """[draws, targets]: `misplaced`."""
        return array(self.misplaced).reshape(-1, max(1, len(self.attack)))

    @property
    def corrections(self) -> NDArray[np.float64]:
        """[draws, targets]: `easier`."""
        import numpy as np

        return array(self.easier).reshape(self.draws.shape) if self.easier else np.zeros(1)


def by_image(
    privacy: Mapping[str, MetricScore],
    attack: Mapping[str, Sequence[float]],
    guess: Mapping[str, Sequence[float]],
    misplaced: Mapping[str, Sequence[float]],
    easier: Mapping[str, Sequence[float]] | None = None,
    nulls: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
) -> dict[str, ByImage]:
    """What a record keeps of each metric that was scored; values [targets], NaN if undefined.

    `nulls` are those of every guess; the best one is `guess` and is not kept twice.
    """
    best = {name: guess_name(score) for name, score in privacy.items()}
    return {
        name: ByImage(
            leaks_more=privacy[name].leaks_more,
            unit=privacy[name].unit,
            attack=_column(values),
            guess=_column(guess[name]),
            nulls={
                null: _column(column)
                for null, column in (nulls or {}).get(name, {}).items()
                if null != best[name]
            },
            misplaced=_column(misplaced.get(name, ())),
            easier=_column((easier or {}).get(name, ())),
        )
        for name, values in attack.items()
    }


def guess_name(score: MetricScore) -> str:
    """Which of a metric's nulls is the best guess without a release; "" where none has a mean.

    Of equals it is the one that the score names, or the first by name: JSON keeps no order.
    """
    guesses = {name: value for name, value in score.nulls.items() if name != OTHERS}
    most = (max if score.leaks_more == "higher" else min)(guesses.values(), default=None)
    best = sorted(name for name, value in guesses.items() if value == most)
    return score.null_name if score.null_name in best else next(iter(best), "")


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


def as_lucky(
    best: NDArray[np.float64],
    draws: NDArray[np.float64],
    easier: Sequence[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """What the `best` scores [n] of several attacks are worth as guesses, [n].

    `draws` [draws, n] are the best scores of the same answers where others are true, and each of
    `easier` [draws, n] says how much easier to guess than those the targets are. One correction
    serves all attacks; with corrections of their own, the maximum would also be over what these
    differ by. All are right on average: that is taken which leaves least to chance.
    """
    import numpy as np

    def spread(column: NDArray[np.float64]) -> float:
        gaps = best - column
        known = gaps[np.isfinite(gaps)]
        return float(known.std()) if len(known) else math.inf

    with np.errstate(over="ignore", invalid="ignore"):  # whoever asks refuses what is too large
        return min((np.mean(draws + each, axis=0) for each in easier), key=spread)


def worst_case(
    scores: Mapping[str, Tensor],
    guesses: Mapping[str, Tensor],
    misplaced: Sequence[Mapping[str, Tensor]],
    easier: Sequence[Tensor],
    leaks_more: Direction,
    unit: str,
    chance: float | None,
) -> Values:
    """One metric's worst case over attacks, beside guesses and the worst case over misplaced ones.

    The maximum over many attacks is lucky somewhere. The maximum over the same attacks' answers,
    where other images of the class are true, has the same luck and says nothing of this one:
    `misplaced` holds it for each draw of others, `easier` what `as_lucky` corrects it by.
    """
    import numpy as np

    best = strongest(scores, leaks_more)[0].numpy()
    nulls = {name: column.numpy() for name, column in guesses.items()}
    if misplaced:
        lucky = [strongest(draw, leaks_more)[0].numpy() for draw in misplaced]
        nulls[OTHERS] = as_lucky(best, np.stack(lucky), [each.numpy() for each in easier])
    return Values(best, nulls, leaks_more, unit, chance)

"""Several seeds become one number."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isfinite, sqrt

from harness.api.errors import IntegrityError
from harness.results.view import Number
from harness.scoring.intervals import CONFIDENCE

DIGITS = 6
"""Significant digits of every number on a board: the same wherever it is built."""

TOO_LARGE = "Some record holds scores too large to be any: `harness verify` names it."


def rounded(value: float) -> float:
    """As boards show it."""
    return float(f"{value:.{DIGITS}g}")


def number(value: float, ci: tuple[float, float] | None = None) -> Number:
    """A number as boards show it; IntegrityError for one that no measurement gives."""
    if not all(map(isfinite, (value, *(ci or ())))):
        raise IntegrityError(TOO_LARGE)
    return Number(value=rounded(value), ci=(rounded(ci[0]), rounded(ci[1])) if ci else None)


def combined(seeds: Sequence[Number]) -> Number:
    """The mean of the seeds' values, with a 95% interval.

    That of a single seed is its own. Of several it is the wider one of two: Student's t over the
    seeds' values, and their own intervals pooled as those of independent means.
    """
    if len(seeds) == 1:
        return seeds[0]
    mean = sum(each.value for each in seeds) / len(seeds)
    reach = max(_between(seeds), _within(seeds))
    return number(mean, (mean - reach, mean + reach))


def _between(seeds: Sequence[Number]) -> float:
    """Half the width of Student's t interval of the mean of the seeds' values."""
    import numpy as np
    from scipy.stats import t

    values, n = [each.value for each in seeds], len(seeds)
    return float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def _within(seeds: Sequence[Number]) -> float:
    """Half the width of the pooled interval of seeds that have one."""
    widths = [each.ci[1] - each.ci[0] for each in seeds if each.ci]
    return sqrt(sum(width * width for width in widths)) / 2 / len(seeds)


def ratio(part: Number, whole: Number) -> Number:
    """A share, its interval by their relative errors as if these were independent."""
    value = part.value / whole.value
    reach = value * hypot(_relative(part), _relative(whole))
    sure = part.ci is not None and whole.ci is not None
    return number(value, (max(0.0, value - reach), value + reach) if sure else None)


def _relative(value: Number) -> float:
    low, high = value.ci or (value.value, value.value)
    return (high - low) / 2 / value.value if value.value else 0.0


def together(values: Sequence[Number]) -> Number:
    """The mean of numbers of the same images, whose errors go together: intervals are averaged."""
    n = len(values)
    mean = sum(each.value for each in values) / n
    ends = [each.ci or (each.value, each.value) for each in values]
    return number(mean, (sum(low for low, _ in ends) / n, sum(high for _, high in ends) / n))

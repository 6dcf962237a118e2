"""How sure the means are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.api import Stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Interval = tuple[float, float]
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
    import numpy as np

    n, k = values.shape
    if n < 2 or k == 0:
        return [None] * k
    defined = n - np.isnan(values).sum(0)
    bounds = zip(*_bootstrap(values, stream), defined, strict=True)
    return [_interval(low, high) if count > 1 else None for low, high, count in bounds]


def _bootstrap(
    values: NDArray[np.float64], stream: Stream
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bounds [k]; NaN where some resample holds no defined value."""
    import warnings

    import numpy as np
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # NaN says the same
        result = bootstrap(
            (np.arange(len(values)),),
            _resampled_means(values),
            n_resamples=RESAMPLES,
            batch=max(1, BATCH_VALUES // len(values)),
            confidence_level=CONFIDENCE,
            method="percentile",
            vectorized=True,
            rng=np.random.default_rng(stream.seed()),
        )
    return result.confidence_interval.low, result.confidence_interval.high


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


def _interval(low: float, high: float) -> Interval | None:
    import math

    return None if math.isnan(low) or math.isnan(high) else (float(low), float(high))


def t_interval(shares: Sequence[float]) -> Interval:
    """95% interval of the mean of two or more independent shares, by Student's t, in [0,1]."""
    import numpy as np
    from scipy.stats import t

    mean, n = float(np.mean(shares)), len(shares)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(shares, ddof=1) / np.sqrt(n))
    return max(0.0, mean - reach), min(1.0, mean + reach)


def proportion_interval(hits: int, n: int) -> Interval | None:
    """95% Wilson interval of a proportion."""
    from scipy.stats import binomtest

    if n == 0:
        return None
    interval = binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)

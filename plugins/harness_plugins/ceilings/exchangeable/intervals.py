"""From one value per target to a mean or a pooled ratio, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.api import Stream

RESAMPLES = 2000
CONFIDENCE = 0.95
_BATCH = 1 << 21

Interval = tuple[float, float]


class Resamples:
    """Targets drawn with replacement, the same draws for everything that is asked."""

    def __init__(self, targets: int, stream: Stream) -> None:
        self._targets = targets
        self._seed = stream.seed()

    def mean(self, values: NDArray[np.float64]) -> tuple[float, Interval]:
        """The mean of values [t], and its 95% interval."""
        drawn = self._sums(values) / self._targets
        return float(values.mean()), _ends(drawn)

    def pooled_db(
        self, energies: NDArray[np.float64], errors: NDArray[np.float64]
    ) -> tuple[float, Interval]:
        """10 log10(Σ energies / Σ errors) of [t] each, and its 95% interval."""
        drawn = _decibels(self._sums(energies), self._sums(errors))
        return float(_decibels(energies.sum(), errors.sum())), _ends(drawn)

    def _sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """[resamples] sums of values [t]; every call draws the same resamples."""
        rng, step = np.random.default_rng(self._seed), max(1, _BATCH // self._targets)
        sizes = [(min(step, RESAMPLES - done), self._targets) for done in range(0, RESAMPLES, step)]
        return np.concatenate([values[rng.integers(self._targets, size=s)].sum(1) for s in sizes])


def _decibels(energies: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Capped at ±120 dB, as images' own ratios are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(10 * np.log10(energies / errors), -120.0, 120.0)


def _ends(drawn: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)

"""From values to places in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

AIR = 0.07
"""Of the range of the data, on each side of it."""


@dataclass(frozen=True)
class Scale:
    """`low` is drawn at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is drawn, to a tenth."""
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)


def scale_of(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale with room for all values, and some air."""
    low, high = min(values), max(values)
    room = AIR * (high - low) or 0.05 * (abs(high) or 1.0)
    return Scale(low - room, high + room, start, end)


def round_values(scale: Scale, about: int = 6) -> list[float]:
    """Round numbers within the scale, about so many."""
    rough = (scale.high - scale.low) / about
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = ceil(scale.low / step), floor(scale.high / step)
    return [i * step for i in range(first, last + 1)]

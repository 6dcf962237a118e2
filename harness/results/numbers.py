"""A board's numbers: how several seeds become one, and how they are written for readers."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, inf, isfinite, sqrt

from harness.api.errors import IntegrityError
from harness.results.view import Leak, Number
from harness.scoring.summary import CONFIDENCE, Interval
from harness.scoring.verdict import ABSOLUTE

DIGITS = 6
"""Significant digits of every number on a board: the same wherever it is built."""
TOO_LARGE = "Some record holds scores too large to be any: `harness verify` names it."
EXACT_DB = 60.0
"""From here on errors are below a thousandth of the image, as where nothing protects it."""
NAMES = {"snr": "SNR", "psnr": "PSNR", "ssim": "SSIM", "lpips_vgg": "LPIPS", "mse": "MSE"}
NONE = "–"


def off_scale(unit: str) -> float:
    """Values from which on the image is there for all to see: they would leave the rest no room."""
    return EXACT_DB if unit == "dB" else inf


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
    import numpy as np
    from scipy.stats import t

    values, n = [each.value for each in seeds], len(seeds)
    mean = sum(values) / n
    student = float(t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    widths = [each.ci[1] - each.ci[0] for each in seeds if each.ci]
    reach = max(student, sqrt(sum(width * width for width in widths)) / 2 / n)
    return number(mean, (mean - reach, mean + reach))


def ratio(part: Number, whole: Number) -> Number:
    """A share, its interval by their relative errors as if these were independent."""
    value = part.value / whole.value
    reach = value * hypot(_relative(part), _relative(whole))
    sure = part.ci is not None and whole.ci is not None
    return number(value, (max(0.0, value - reach), value + reach) if sure else None)


def _relative(value: Number) -> float:
    return (value.high - value.low) / 2 / value.value if value.value else 0.0


def together(values: Sequence[Number]) -> Number:
    """The mean of numbers of the same images, whose errors go together: intervals are averaged."""
    mean, low, high = (
        sum(ends) / len(values)
        for ends in zip(*((each.value, each.low, each.high) for each in values), strict=True)
    )
    return number(mean, (low, high))


def metric_name(metric: str) -> str:
    """What people call a metric: `snr_db` is SNR."""
    bare = metric.removesuffix(ABSOLUTE)
    name = NAMES.get(bare.removesuffix("_db"), bare)
    return f"{name} of |x|" if bare != metric else name


def signed(value: float, unit: str) -> str:
    """A gain, with its sign: one digit after the point in decibels, three elsewhere."""
    return _minus(f"{value:+.{_digits(unit)}f}")


def plain(value: float | None, unit: str) -> str:
    """A score as it is; a dash where there is none."""
    return NONE if value is None else _minus(f"{value:.{_digits(unit)}f}")


def percent(value: float) -> str:
    """A share in percent with one digit after the point."""
    return f"{100 * value:.1f}%"


def reach(interval: Interval | None, unit: str, sign: bool = False) -> str:
    """An interval in brackets; nothing where there is none."""
    if interval is None:
        return ""
    ends = [signed(end, unit) if sign else plain(end, unit) for end in interval]
    return f"[{ends[0]}, {ends[1]}]"


def share_reach(interval: Interval | None) -> str:
    """An interval of shares, in percent."""
    return "" if interval is None else f"[{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def gained(leak: Leak) -> str:
    """A gain with its interval and unit, in one text."""
    parts = [signed(leak.gain.value, leak.unit), leak.unit, reach(leak.gain.ci, leak.unit, True)]
    return " ".join(filter(None, parts))


def share(number: Number) -> str:
    """A share with its interval, in one text."""
    return " ".join(filter(None, [percent(number.value), share_reach(number.ci)]))


def seconds(value: float) -> str:
    """A time of computing, in the unit that suits it."""
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}" + "s" * (number != 1)


def as_written(value: float) -> str:
    """A number of somebody else's, with the digits that it was given with."""
    return _minus(f"{value:.15g}")


def code(text: str) -> str:
    """Somebody's name for a thing, in backticks, on one line."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _digits(unit: str) -> int:
    return 1 if unit == "dB" else 3


def _minus(text: str) -> str:
    """A minus as wide as a plus, and none before a zero."""
    zero = not text.strip("+-0.")
    return text.lstrip("+-") if zero else text.replace("-", "−")

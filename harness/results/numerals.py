"""Numbers as a reader sees them: one way for each kind."""

from __future__ import annotations

from harness.results.view import Leak, Number
from harness.scoring.intervals import Interval

NAMES = {"snr": "SNR", "psnr": "PSNR", "ssim": "SSIM", "lpips_vgg": "LPIPS", "mse": "MSE"}
ABSOLUTE = "_abs"
"""Ends the name of a metric on absolute values, for defenses that hide signs."""
NONE = "–"


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

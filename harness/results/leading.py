"""Which metrics rank a board, and by which face of a metric a defense is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.results.numerals import ABSOLUTE
from harness.results.view import Leak

RANKING = ("snr_db", "ssim", "lpips_vgg")
"""Metrics that rows are ranked by, where they were scored."""


def counts(metric: str) -> bool:
    """Whether a board shows a metric."""
    return metric.removesuffix(ABSOLUTE) in RANKING


def leading(leaks: Mapping[str, Leak], metric: str) -> Leak | None:
    """A metric's leak: as it is, or on absolute values where those leak more."""
    found = [leaks[name] for name in (metric, metric + ABSOLUTE) if name in leaks]
    return max(found, key=lambda leak: leak.gain.value, default=None)


def ranking(leaks: Iterable[Mapping[str, Leak]]) -> tuple[str, ...]:
    """The ranking metrics that any of these have."""
    found = {name.removesuffix(ABSOLUTE) for each in leaks for name in each}
    return tuple(name for name in RANKING if name in found)

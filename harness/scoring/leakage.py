"""Flags on one judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.scoring.flag import Flag
from harness.scoring.verdict import MAIN_METRIC, telling_metric

if TYPE_CHECKING:
    from harness.running.judge import Judgement
    from harness.scoring.summary import MetricScore

SAME_GREY = 0.5 / 255
"""Images that differ by less than half a grey level look the same."""


def check_judgement(judgement: Judgement) -> list[Flag]:
    """All flags that one judgement raises."""
    return [
        *below_null(judgement.privacy),
        *constant_output(judgement),
        *undefined_targets(judgement.privacy),
        *null_fallback(judgement),
    ]


def below_null(privacy: Mapping[str, MetricScore]) -> list[Flag]:
    """The attack does worse than guessing, and no better where signs do not count."""
    score = privacy.get(MAIN_METRIC)
    if score is None or score.gain_ci is None or score.gain_ci[1] >= 0:
        return []
    if telling_metric(privacy) != MAIN_METRIC:
        return []
    low, high = score.gain_ci
    message = (
        f"the attack's {MAIN_METRIC} lies {-high:.2f} to {-low:.2f} {score.unit} below the null "
        f"'{score.null_name}', which uses no release: its failure says nothing about the defense"
    )
    return [Flag(name="below_null", message=message)]


def constant_output(judgement: Judgement) -> list[Flag]:
    """The attack returns one image for all targets."""
    images = judgement.images[judgement.found]
    if len(images) < 2 or (images - images[0]).abs().max().item() > SAME_GREY:
        return []
    message = f"all {len(images)} reconstructions are the same image: the release was not used"
    return [Flag(name="constant_output", message=message)]


def undefined_targets(privacy: Mapping[str, MetricScore]) -> list[Flag]:
    """Some targets have no value under a metric and are left out of its means."""
    counts = {name: score.undefined for name, score in privacy.items() if score.undefined}
    if not counts:
        return []
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    message = f"targets without a defined value, counted and not averaged: {listed}"
    return [Flag(name="undefined_targets", message=message)]


def null_fallback(judgement: Judgement) -> list[Flag]:
    """A null had to be made from less than its name says."""
    notes = [note for note in judgement.notes if "falls back" in note]
    return [Flag(name="null_fallback", message="; ".join(notes))] if notes else []

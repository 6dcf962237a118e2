"""Rows as marks in a plane of accuracy and leakage: the same in a board's picture and page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from harness.asking.selector import parse_stack
from harness.drawing.plane import EXACT_DB
from harness.results.apart import differing, written
from harness.results.leading import leading
from harness.results.view import Number, RowView


def placed(rows: Iterable[RowView], metric: str) -> list[RowView]:
    """Rows that have a place: both numbers, and no attack that is still to run."""
    return [row for row in rows if row.accuracy and leading(row.leaks, metric) and not row.missing]


def series_of(defense: str) -> str:
    """The defense without its options: `gradprune[p=0.9]+mixup[k=4]` is `gradprune+mixup`."""
    return "+".join(each.name for each in parse_stack(defense))


def options_of(defense: str) -> dict[str, str]:
    """All options of a stack, as written; in a stack by the defense they belong to."""
    stack = parse_stack(defense)
    return {
        option if len(stack) == 1 else f"{each.name}.{option}": value
        for each in stack
        for option, value in each.options.items()
    }


def texts(defenses: Sequence[str]) -> list[str]:
    """What tells each from others of its series; empty where it is alone."""
    return [_text(defense, _alike(defense, defenses)) for defense in defenses]


def _text(defense: str, among: Sequence[str]) -> str:
    options = [options_of(each) for each in among]
    return ", ".join(written(options_of(defense), differing(options))) if len(among) > 1 else ""


def _alike(defense: str, defenses: Iterable[str]) -> list[str]:
    return [each for each in defenses if series_of(each) == series_of(defense)]


def lines(defenses: Sequence[str]) -> list[tuple[int, ...]]:
    """Numbers of those that a line joins: of one series, apart in one number alone, in its order.

    The lines come in the order of their series' names.
    """
    names = sorted({series_of(defense) for defense in defenses})
    return [line for name in names if (line := _line(name, defenses))]


def _line(series: str, defenses: Sequence[str]) -> tuple[int, ...]:
    members = {i: options_of(d) for i, d in enumerate(defenses) if series_of(d) == series}
    names = differing([*members.values()])
    if len(names) != 1:
        return ()
    try:
        values = {i: float(own.get(names[0], "")) for i, own in members.items()}
    except ValueError:
        return ()
    return tuple(sorted(values, key=lambda i: values[i]))


def off_scale(unit: str) -> float:
    """Gains from which on the image is there for all to see: they would leave the rest no room."""
    return EXACT_DB if unit == "dB" else inf


def unprotected(rows: Iterable[RowView]) -> Number | None:
    """The accuracy without protection: of those that rows are held against, that of most seeds."""
    known = [(len(row.seeds), row.reference) for row in rows if row.reference]
    return max(known, key=lambda each: each[0])[1] if known else None


def chance(rows: Iterable[RowView]) -> float | None:
    """The accuracy of guessing, where some row is no better than that."""
    return next((row.chance for row in rows if row.at_chance), None)

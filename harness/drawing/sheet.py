"""A board as comma-separated values: a line for each row and metric, and for each cell."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from harness.results.view import BoardView, CellView, Leak, Number, RowView, TrackView

COLUMNS = (
    "kind",
    "board",
    "track",
    "defense",
    "attack",
    "threat_model",
    "release",
    "status",
    "reason",
    "metric",
    "unit",
    "leaks_more",
    "rank",
    *("accuracy", "accuracy_low", "accuracy_high"),
    *("reference", "reference_low", "reference_high"),
    *("retained", "retained_low", "retained_high"),
    "chance",
    *("mean", "mean_low", "mean_high"),
    "null",
    *("gain", "gain_low", "gain_high"),
    "worst",
    "strongest",
    "seeds",
    "verified",
    "flags",
    "origin",
    "records",
)
"""`kind` is `row` or `cell`; lists are parted by spaces; what is not there is empty."""


def as_csv(view: BoardView) -> str:
    """The whole board, in the order of its table."""
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for track in view.tracks:
        for row in track.rows:
            writer.writerows(_lines(view, track, row))
    return text.getvalue()


def _lines(view: BoardView, track: TrackView, row: RowView) -> Iterator[dict[str, Any]]:
    place = {"board": view.name, "track": track.name, "defense": row.defense}
    for leak in _or_none(row.leaks.values()):
        yield {
            **place,
            **_row(row),
            **_leak(leak),
            "rank": row.rank.get(leak.metric if leak else ""),
        }
    for cell in row.cells:
        for leak in _or_none(cell.leaks.values()):
            yield {**place, **_cell(cell), **_leak(leak)}


def _or_none(leaks: Any) -> Sequence[Leak | None]:
    """One line without numbers where there are none."""
    return [*leaks] or [None]


def _row(row: RowView) -> dict[str, Any]:
    return {
        "kind": "row",
        **_number("accuracy", row.accuracy),
        **_number("reference", row.reference),
        **_number("retained", row.retained),
        "chance": row.chance,
        "verified": row.verified,
        "flags": _names(flag.name for flag in row.flags),
        "origin": row.origin,
    }


def _cell(cell: CellView) -> dict[str, Any]:
    return {
        "kind": "cell",
        "attack": cell.attack,
        "threat_model": cell.threat_model,
        "release": cell.release_kind,
        "status": cell.status,
        "reason": cell.reason,
        "seeds": _names(cell.seeds),
        "verified": cell.verified,
        "flags": _names(flag.name for flag in cell.flags),
        "origin": cell.origin,
        "records": _names(cell.records),
    }


def _leak(leak: Leak | None) -> dict[str, Any]:
    if leak is None:
        return {}
    return {
        "metric": leak.metric,
        "unit": leak.unit,
        "leaks_more": leak.leaks_more,
        **_number("mean", leak.mean),
        "null": leak.null,
        **_number("gain", leak.gain),
        "worst": leak.worst,
        "strongest": leak.strongest,
        "seeds": _names(leak.seeds),
    }


def _number(name: str, number: Number | None) -> dict[str, Any]:
    low, high = (number.ci if number else None) or (None, None)
    return {name: number.value if number else None, f"{name}_low": low, f"{name}_high": high}


def _names(values: Any) -> str:
    return " ".join(map(str, dict.fromkeys(values)))

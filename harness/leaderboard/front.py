"""The picture of a board: accuracy against what the strongest attack gains, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf

from harness.leaderboard.apart import differing, written
from harness.leaderboard.leading import leading
from harness.leaderboard.numerals import metric_name
from harness.leaderboard.plane import EXACT_DB, Plane, Point
from harness.leaderboard.view import BoardView, RowView, TrackView
from harness.selector import parse_stack


def front_of(view: BoardView) -> Plane | None:
    """The plane of the first track that has rows with ranks; None where no track has any."""
    for track in view.tracks:
        for metric in view.metrics:
            rows = [row for row in track.rows if metric in row.rank]
            if rows:
                return _plane(view, track, rows, metric)
    return None


def _plane(view: BoardView, track: TrackView, rows: Sequence[RowView], metric: str) -> Plane:
    rows = sorted(rows, key=lambda row: (_series(row), row.defense))
    points = tuple(_point(row, rows, metric) for row in rows)
    unit = rows[0].leaks[metric].unit
    victim = f" ({track.protocol['victim']})" if "victim" in track.protocol else ""
    return Plane(
        heading=f"{view.title}: {track.title[:1].lower()}{track.title[1:]}",
        note="of each image the strongest attack; 95% intervals; below 0 is worse than guessing",
        across=f"accuracy of the victim{victim}",
        up=f"gain in {metric_name(metric)} over guessing{f' ({unit})' if unit else ''}"
        "   higher leaks more →",
        points=points,
        lines=tuple(_lines(rows)),
        unprotected=_unprotected(rows),
        off_scale=EXACT_DB if unit == "dB" else inf,
        front=tuple(i for i, row in enumerate(rows) if row.rank[metric] == 1),
        ground=0.0,
    )


def _point(row: RowView, rows: Sequence[RowView], metric: str) -> Point:
    leak = leading(row.leaks, metric)
    assert leak is not None
    assert row.accuracy is not None
    alike = [_options(each) for each in rows if _series(each) == _series(row)]
    return Point(
        series=_series(row),
        label=", ".join(written(_options(row), differing(alike))) if len(alike) > 1 else "",
        accuracy=row.accuracy.value,
        accuracy_ci=row.accuracy.ci,
        leakage=leak.gain.value,
        leakage_ci=leak.gain.ci,
        null=None,
    )


def _series(row: RowView) -> str:
    """A stack's plugins without their options."""
    return "+".join(each.name for each in parse_stack(row.defense))


def _options(row: RowView) -> dict[str, str]:
    """Options as written; of a stack, the last of one name."""
    return {k: v for each in parse_stack(row.defense) for k, v in each.options.items()}


def _lines(rows: Sequence[RowView]) -> list[tuple[int, ...]]:
    """Rows of one series that differ in one number alone, in its order."""
    lines = []
    for _, group in groupby(range(len(rows)), key=lambda i: _series(rows[i])):
        members = list(group)
        names = differing([_options(rows[i]) for i in members])
        values = {i: _number(_options(rows[i]).get(names[0], "")) for i in members if names}
        if len(names) == 1 and None not in values.values():
            lines.append(tuple(sorted(members, key=lambda i: values[i] or 0.0)))
    return lines


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unprotected(rows: Sequence[RowView]) -> tuple[tuple[float, tuple[float, float] | None], ...]:
    """Accuracies without protection, each once."""
    found = {row.reference.value: row.reference.ci for row in rows if row.reference}
    return tuple(sorted(found.items()))

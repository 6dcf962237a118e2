"""The picture of a board: accuracy against what the strongest attack gains, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from harness.drawing.plane import Plane, Point
from harness.results import marks
from harness.results.leading import leading
from harness.results.numerals import metric_name
from harness.results.view import BoardView, RowView, TrackView


def front_of(view: BoardView) -> Plane | None:
    """The plane of the first track that has rows with ranks; None where no track has any."""
    for track in view.tracks:
        for metric in view.metrics:
            if any(metric in row.rank for row in track.rows):
                return _plane(view, track, marks.placed(track.rows, metric), metric)
    return None


def _plane(view: BoardView, track: TrackView, rows: Sequence[RowView], metric: str) -> Plane:
    rows = sorted(rows, key=lambda row: (marks.series_of(row.defense), row.defense))
    defenses = [row.defense for row in rows]
    unit = rows[0].leaks[metric].unit
    victim = f" ({track.protocol['victim']})" if "victim" in track.protocol else ""
    bare = marks.unprotected(rows)
    return Plane(
        heading=f"{view.title}: {track.title[:1].lower()}{track.title[1:]}",
        note="of each image the strongest attack; 95% intervals; below 0 is worse than guessing",
        across=f"accuracy of the victim{victim}",
        up=f"gain in {metric_name(metric)} over guessing{f' ({unit})' if unit else ''}"
        "   higher leaks more →",
        points=tuple(
            _point(row, text, metric) for row, text in zip(rows, marks.texts(defenses), strict=True)
        ),
        lines=tuple(marks.lines(defenses)),
        unprotected=((bare.value, bare.ci),) if bare else (),
        off_scale=marks.off_scale(unit),
        front=tuple(i for i, row in enumerate(rows) if row.rank.get(metric) == 1),
        ground=0.0,
        chance=marks.chance(rows),
    )


def _point(row: RowView, text: str, metric: str) -> Point:
    leak = leading(row.leaks, metric)
    assert leak is not None
    assert row.accuracy is not None
    return Point(
        series=marks.series_of(row.defense),
        label=text,
        accuracy=row.accuracy.value,
        accuracy_ci=row.accuracy.ci,
        leakage=leak.gain.value,
        leakage_ci=leak.gain.ci,
        null=None,
    )

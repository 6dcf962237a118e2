"""The accuracy-leakage plane as shapes on a page: one mark for each row of a track."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.drawing.site.axes import Scale, round_values, scale_of
from harness.drawing.site.labels import Box, Label, place
from harness.results import marks as shared
from harness.results.leading import leading
from harness.results.numerals import gained, metric_name, percent, share
from harness.results.rows import in_order
from harness.results.view import BoardView, Leak, Number, RowView, TrackView

WIDTH, HEIGHT = 760.0, 420.0
FRAME = Box(58.0, 14.0, 746.0, 372.0)
"""Where points may be."""
SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.6-4.6h9.2v9.2h-9.2z",
    "M0-6 5.8 4.4h-11.6z",
    "M0-6.4 6.4 0 0 6.4-6.4 0z",
    "M0 6 5.8-4.4h-11.6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "M0-2.8 3.6-6.4 6.4-3.6 2.8 0 6.4 3.6 3.6 6.4 0 2.8-3.6 6.4-6.4 3.6-2.8 0-6.4-3.6-3.6-6.4z",
    "M-6 0 4.4-5.8v11.6z",
    "M6 0-4.4-5.8v11.6z",
)
COLOURS = 7

Bar = tuple[float, float, float, float]
"""A line from x, y to x, y."""


@dataclass(frozen=True)
class Series:
    """Rows of one defense at several strengths: a colour and a shape of their own."""

    name: str
    colour: int
    shape: str


@dataclass(frozen=True)
class Mark:
    """A row: its place, its error bars as lines, and what it says when pointed at.

    `front`: nothing beats it.
    """

    row: RowView
    series: Series
    x: float
    y: float
    bars: tuple[Bar, ...]
    tip: str
    front: bool
    label: Label | None = None


@dataclass(frozen=True)
class Tick:
    """A number on an axis, and where."""

    at: float
    text: str


@dataclass(frozen=True)
class Scatter:
    """All that is drawn. `lines` join strengths of one defense; `zero` is the gain of guessing."""

    marks: tuple[Mark, ...]
    lines: tuple[tuple[int, str], ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    zero: float
    reference: Tick | None
    chance: Tick | None
    series: tuple[Series, ...]
    unit: str
    capped: bool


@dataclass(frozen=True)
class _Point:
    """A row that has a place in the plane; `beyond` the scale of the others, it is at its edge."""

    row: RowView
    accuracy: Number
    leak: Leak
    beyond: bool


def scatter(track: TrackView, metric: str) -> Scatter | None:
    """The plane of a track by a metric; None where no row has both numbers."""
    points = _points(in_order(track.rows, metric), metric)
    if not points:
        return None
    across, up = _across(points), _up(points)
    series = _series(track.rows)
    marks = _marks(points, series, across, up, metric)
    reference, chance = _bare(points), shared.chance(point.row for point in points)
    return Scatter(
        marks=tuple(marks),
        lines=tuple(_lines(marks)),
        across=tuple(Tick(across(v), f"{100 * v:.3g}%") for v in round_values(across)),
        up=tuple(Tick(up(v), f"{v:+.3g}".replace("-", "−").lstrip("+")) for v in round_values(up)),
        zero=up(0.0),
        reference=Tick(across(reference.value), share(reference)) if reference else None,
        chance=None if chance is None else Tick(across(chance), percent(chance)),
        series=tuple(s for s in series.values() if any(mark.series == s for mark in marks)),
        unit=points[0].leak.unit,
        capped=any(point.beyond for point in points),
    )


def first(view: BoardView) -> Scatter | None:
    """The plane of a board's first track that has one, by its first metric."""
    found = (scatter(track, metric) for track in view.tracks for metric in view.metrics[:1])
    return next(filter(None, found), None)


def _points(rows: Iterable[RowView], metric: str) -> list[_Point]:
    able = shared.placed(rows, metric)
    leaks = [(row, leak) for row in able if (leak := leading(row.leaks, metric))]
    scaled = any(not _too_much(leak) for row, leak in leaks if row.accuracy)
    return [
        _Point(row, row.accuracy, leak, beyond=scaled and _too_much(leak))
        for row, leak in leaks
        if row.accuracy
    ]


def _too_much(leak: Leak) -> bool:
    return leak.gain.value >= shared.off_scale(leak.unit)


def _across(points: Sequence[_Point]) -> Scale:
    bare, chance = _bare(points), shared.chance(point.row for point in points)
    learned = [point.accuracy for point in points] + ([bare] if bare else [])
    values = [v for number in learned for v in _ends(number)]
    return scale_of(values + ([] if chance is None else [chance]), FRAME.left, FRAME.right)


def _bare(points: Sequence[_Point]) -> Number | None:
    """What is learned without protection."""
    return shared.unprotected(point.row for point in points)


def _up(points: Sequence[_Point]) -> Scale:
    """Of the gains that leave room for each other; the others stand at the top."""
    near = [point.leak.gain for point in points if not point.beyond]
    values = [0.0, *(v for number in near for v in _ends(number))]
    return scale_of(values, FRAME.bottom, FRAME.top)


def _ends(number: Number) -> tuple[float, ...]:
    return (number.value, *(number.ci or ()))


def _series(rows: Iterable[RowView]) -> dict[str, Series]:
    names = sorted({shared.series_of(row.defense) for row in rows})
    return {
        name: Series(name, i % COLOURS, SHAPES[i % len(SHAPES)]) for i, name in enumerate(names)
    }


def _marks(
    points: Sequence[_Point],
    series: Mapping[str, Series],
    across: Scale,
    up: Scale,
    metric: str,
) -> list[Mark]:
    marks = [_mark(point, series, across, up, metric) for point in points]
    texts = _texts([point.row for point in points])
    wanted = [(mark.x, mark.y, text) for mark, text in zip(marks, texts, strict=True)]
    labels = place(wanted, [box for mark in marks for box in _boxes(mark)], FRAME)
    return [replace(mark, label=label) for mark, label in zip(marks, labels, strict=True)]


def _mark(
    point: _Point, series: Mapping[str, Series], across: Scale, up: Scale, metric: str
) -> Mark:
    """A row's mark, without a label."""
    x = across(point.accuracy.value)
    y = FRAME.top if point.beyond else up(point.leak.gain.value)
    return Mark(
        row=point.row,
        series=series[shared.series_of(point.row.defense)],
        x=x,
        y=y,
        bars=tuple(_bars(point, x, y, across, up)),
        tip=_tip(point, metric),
        front=point.row.rank.get(metric) == 1,
    )


def _bars(point: _Point, x: float, y: float, across: Scale, up: Scale) -> Iterable[Bar]:
    if ci := point.accuracy.ci:
        yield across(ci[0]), y, across(ci[1]), y
    if (ci := point.leak.gain.ci) and not point.beyond:
        yield x, up(ci[0]), x, up(ci[1])


def _boxes(mark: Mark) -> Iterable[Box]:
    """What a mark and its error bars take."""
    yield Box(mark.x - 7, mark.y - 7, mark.x + 7, mark.y + 7)
    for x1, y1, x2, y2 in mark.bars:
        yield Box(min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1)


def _texts(rows: Sequence[RowView]) -> list[str]:
    """What tells a row from others of its series; where it is alone, what it is."""
    defenses = [row.defense for row in rows]
    return [
        text or shared.series_of(defense)
        for text, defense in zip(shared.texts(defenses), defenses, strict=True)
    ]


def _tip(point: _Point, metric: str) -> str:
    """Lines that a reader sees when pointing at a mark."""
    row, leak = point.row, point.leak
    lines = [
        row.defense,
        f"accuracy {share(point.accuracy)}{', at chance' if row.at_chance else ''}",
        f"{metric_name(leak.metric)} gain {gained(leak)}",
        f"strongest attack {leak.strongest}" if leak.strongest else "",
        f"rank {row.rank[metric]}" if metric in row.rank else "",
        "" if row.protected else "the reference, without a rank",
        "" if row.verified else "unverified",
    ]
    return "\n".join(filter(None, lines))


def _lines(marks: Sequence[Mark]) -> Iterable[tuple[int, str]]:
    """The colour and the path of each line along which one number of a defense changes."""
    for line in shared.lines([mark.row.defense for mark in marks]):
        path = " ".join(f"{marks[i].x:g},{marks[i].y:g}" for i in line)
        yield marks[line[0]].series.colour, path

"""The accuracy-leakage plane as shapes on a page: one mark for each row of a track."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from harness.drawing.curves import Curve, Spot, row_curves
from harness.drawing.plane import CROWDED, Plane, Point, best_place, ends, row_plane, widened
from harness.results.numbers import percent, share
from harness.results.ranks import rows_in_order
from harness.results.view import BoardView, TrackView

Box = tuple[float, float, float, float]
"""A rectangle: left, top, right, bottom; or a line from x, y to x, y. y points down."""
Anchor = Literal["start", "middle", "end"]

WIDTH, HEIGHT = 760.0, 420.0
LEFT, TOP, RIGHT, BOTTOM = FRAME = (58.0, 14.0, 746.0, 372.0)
"""Where points may be."""
AIR = 0.07
"""Of the range of the data, on each side of it."""
CURVE_AIR = 0.12
"""Likewise of numbers of images, so that names have room beside the last ones."""
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
SQUARE = "M-9-9h18v18h-18z"
"""Around a mark whose images are named."""
BAR = 11.0
"""How far right of a mark its bracket stands."""
COLOURS = 7
LETTER, LINE = 6.2, 12.0
"""About how wide a letter is, and how high a line: units of the picture."""
PLACES = (
    *((9, 4), (-9, 4), (0, -10), (0, 18)),
    *((8, -7), (8, 15), (-8, -7), (-8, 15)),
    *((12, -18), (12, 27), (-12, -18), (-12, 27)),
)
"""How far right of and below its mark a label's foot may be: the end that is near the mark."""


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

    def round_values(self, about: int = 6) -> list[float]:
        """Round numbers within the scale, about so many."""
        rough = (self.high - self.low) / about
        power = 10.0 ** floor(log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
        first, last = ceil(self.low / step), floor(self.high / step)
        return [i * step for i in range(first, last + 1)]


@dataclass(frozen=True)
class Series:
    """Rows of one defense at several strengths: a colour and a shape of their own."""

    name: str
    colour: int
    shape: str


@dataclass(frozen=True)
class Label:
    """A text with its foot at x, y."""

    x: float
    y: float
    anchor: Anchor
    text: str


@dataclass(frozen=True)
class Mark:
    """A point's sign at its place, its error bars as lines, and its label if there is room.

    `bracket` goes from what was reached to the ceiling, beside the sign.
    """

    point: Point
    series: Series
    x: float
    y: float
    bars: tuple[Box, ...]
    bracket: Box | None = None
    label: Label | None = None


Tick = tuple[float, str]
"""Where a number on an axis is, and its text."""


@dataclass(frozen=True)
class Drawing:
    """All that is drawn. `zero` is the gain of guessing.

    `lines` join strengths of one defense: each its colour and its path.
    """

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
    named: bool
    bar: str


def drawing(track: TrackView, metric: str) -> Drawing | None:
    """The plane of a track by a metric; None where no row has both numbers."""
    plane = row_plane(track, rows_in_order(track.rows, metric), metric)
    if plane is None:
        return None
    across, up = _across(plane), _up(plane)
    series = _series(plane.series)
    bare = [_mark(p, plane, series[p.series], across, up) for p in plane.points]
    # a label tells a mark from others of its series; one that is alone has its name
    wanted = [(mark.x, mark.y, mark.point.label or mark.series.name) for mark in bare]
    labels = place(wanted, [box for mark in bare for box in _boxes(mark)])
    marks = [replace(mark, label=label) for mark, label in zip(bare, labels, strict=True)]
    reference = next(iter(plane.unprotected), None)
    return Drawing(
        marks=tuple(marks),
        lines=tuple(
            (marks[line[0]].series.colour, " ".join(f"{marks[i].x:g},{marks[i].y:g}" for i in line))
            for line in plane.lines
        ),
        across=tuple((across(v), f"{100 * v:.3g}%") for v in across.round_values()),
        up=tuple((up(v), f"{v:+.3g}".replace("-", "−").lstrip("+")) for v in up.round_values()),
        zero=up(0.0),
        reference=(across(reference.value), share(reference)) if reference else None,
        chance=None if plane.chance is None else (across(plane.chance), percent(plane.chance)),
        series=tuple(s for s in series.values() if any(mark.series == s for mark in marks)),
        unit=plane.unit,
        capped=any(map(plane.beyond, plane.points)),
        named=any(point.named for point in plane.points),
        bar=plane.bar,
    )


@dataclass(frozen=True)
class Dot:
    """One accuracy of a curve: where it is, its error bar, and what it says."""

    x: float
    y: float
    bar: Box | None
    spot: Spot


@dataclass(frozen=True)
class Path:
    """One curve: its colour and shape, its dashes (0 for none), its dots, its name at its end."""

    curve: Curve
    colour: int
    shape: str
    dash: int
    dots: tuple[Dot, ...]
    label: Label | None = None

    @property
    def points(self) -> str:
        """As a polyline has them."""
        return " ".join(f"{dot.x:g},{dot.y:g}" for dot in self.dots)


@dataclass(frozen=True)
class CurveDrawing:
    """Accuracy over private images, these on a logarithmic axis.

    `names` are the defenses in their colours and shapes, `rounds` numbers of rounds with their
    dashes.
    """

    paths: tuple[Path, ...]
    unprotected: Path | None
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    chance: Tick | None
    names: tuple[Series, ...]
    rounds: tuple[tuple[int, int], ...]


def curve_drawing(track: TrackView) -> CurveDrawing | None:
    """The curves of a track; None where accuracy is known at one number of images alone."""
    found = row_curves(rows_in_order(track.rows, ""))
    if found is None:
        return None
    across = Scale(*widened([log10(n) for n in found.sizes], CURVE_AIR), LEFT, RIGHT)
    up = Scale(*widened([0.0, *found.accuracies], AIR), BOTTOM, TOP)
    names = _series(found.defenses)
    dashes = {rounds: i for i, rounds in enumerate(found.rounds)}
    bare = [
        Path(
            curve,
            names[curve.defense].colour,
            names[curve.defense].shape,
            dashes[curve.rounds],
            _dots(curve.spots, across, up),
        )
        for curve in found.curves
    ]
    first = {path.curve.defense: path for path in reversed(bare)}
    ends_ = [(path.dots[-1].x, path.dots[-1].y, name) for name, path in first.items()]
    boxes = [(dot.x - 5, dot.y - 5, dot.x + 5, dot.y + 5) for p in bare for dot in p.dots]
    labels = dict(zip(first, place(ends_, boxes), strict=True))
    bare_dots = _dots(found.unprotected, across, up)
    plain = Path(Curve("unprotected", 0, found.unprotected), 0, "", 0, bare_dots)
    return CurveDrawing(
        paths=tuple(
            replace(path, label=labels[name] if first[name] is path else None)
            for path in bare
            for name in (path.curve.defense,)
        ),
        unprotected=plain if plain.dots else None,
        across=tuple((across(log10(n)), f"{n:,}") for n in found.sizes),
        up=tuple((up(v), f"{100 * v:.3g}%") for v in up.round_values()),
        chance=None if found.chance is None else (up(found.chance), percent(found.chance)),
        names=tuple(names.values()),
        rounds=tuple((dash, rounds) for rounds, dash in dashes.items()),
    )


def _dots(spots: Iterable[Spot], across: Scale, up: Scale) -> tuple[Dot, ...]:
    return tuple(_dot(spot, across(log10(spot.n)), up) for spot in spots)


def _dot(spot: Spot, x: float, up: Scale) -> Dot:
    ci = spot.accuracy.ci
    return Dot(x, up(spot.accuracy.value), (x, up(ci[0]), x, up(ci[1])) if ci else None, spot)


def _series(names: Iterable[str]) -> dict[str, Series]:
    """A colour and a shape for each name, in turn."""
    return {n: Series(n, i % COLOURS, SHAPES[i % len(SHAPES)]) for i, n in enumerate(names)}


def first_drawing(view: BoardView) -> Drawing | None:
    """The plane of a board's first track that has one, by its first metric."""
    found = (drawing(track, metric) for track in view.tracks for metric in view.metrics[:1])
    return next(filter(None, found), None)


def _across(plane: Plane) -> Scale:
    numbers = [point.accuracy for point in plane.points] + list(plane.unprotected)
    values = [v for number in numbers for v in ends(number)]
    values += [] if plane.chance is None else [plane.chance]
    return Scale(*widened(values, AIR), LEFT, RIGHT)


def _up(plane: Plane) -> Scale:
    """Of the gains that leave room for each other; the others stand at the top."""
    near = [point for point in plane.points if not plane.beyond(point)]
    values = [v for point in near for v in (*ends(point.leakage), *(point.bracket or ()))]
    return Scale(*widened([0.0, *values], AIR), BOTTOM, TOP)


def _mark(point: Point, plane: Plane, series: Series, across: Scale, up: Scale) -> Mark:
    """A point's mark, without a label."""
    beyond = plane.beyond(point)
    x = across(point.accuracy.value)
    y = TOP if beyond else up(point.leakage.value)
    bars = []
    if ci := point.accuracy.ci:
        bars.append((across(ci[0]), y, across(ci[1]), y))
    if (ci := point.leakage.ci) and not beyond:
        bars.append((x, up(ci[0]), x, up(ci[1])))
    bracket = None
    if point.bracket and not beyond:
        reached, ceiling = map(up, point.bracket)
        bracket = x + BAR, reached, x + BAR, ceiling
    return Mark(point, series, x, y, tuple(bars), bracket)


def _boxes(mark: Mark) -> Iterator[Box]:
    """What a mark and its error bars take."""
    yield mark.x - 7, mark.y - 7, mark.x + 7, mark.y + 7
    for x1, y1, x2, y2 in (*mark.bars, *([mark.bracket] if mark.bracket else [])):
        yield min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1


def place(
    wanted: Iterable[tuple[float, float, str]], drawn: Iterable[Box], frame: Box = FRAME
) -> list[Label | None]:
    """Each text beside its point, or None where there is no room; earlier ones choose first."""
    taken, placed = list(drawn), list[Label | None]()
    for x, y, text in wanted:
        tried = [Label(x + right, y + down, _anchor(right), text) for right, down in PLACES]
        boxes = [_box(label) for label in tried]
        others = np.array(taken).reshape(-1, 4)
        best, cost = best_place(np.array(boxes), others, np.array(frame))
        crowded = cost > CROWDED * LINE * LETTER * len(text)
        placed.append(None if crowded else tried[best])
        taken += [] if crowded else [boxes[best]]
    return placed


def _anchor(right: float) -> Anchor:
    return "start" if right > 0 else "end" if right < 0 else "middle"


def _box(label: Label) -> Box:
    width = LETTER * len(label.text)
    left = label.x - {"start": 0.0, "middle": width / 2, "end": width}[label.anchor]
    return left, label.y - 0.8 * LINE, left + width, label.y + 0.2 * LINE

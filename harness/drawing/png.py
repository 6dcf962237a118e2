"""Figures as PNG, where the same gives the same bytes; and the accuracy-leakage plane as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from math import log10
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.drawing.plane import CROWDED, best_place, ends, widened
from harness.results.view import Number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation

    from harness.drawing.curves import Curves, Spot
    from harness.drawing.plane import Plane, Point

Box = tuple[float, float, float, float]
"""Pixels: x0, y0, x1, y1."""

DPI = 160
INK, FAINT, FRAME, GRID, WARN = "#1d232b", "#67707c", "#c9ced6", "#eceff3", "#a33b00"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1d232b")
"""Told apart by people who see no red or no green (Okabe and Ito)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
WIDTH, ACROSS, UP = 7.4, 6.3, 3.9  # inches: the figure, and its axes
LEFT, BOTTOM, AIR = 0.85, 0.62, 0.13
LINE, BOLD_LETTER, LETTER = 0.19, 0.107, 0.083  # inches: a line of text, a letter of it
HANDLE = 0.55  # inches: the sign before a name in the legend, and the space around both
PLACES = (
    *((8, 5), (8, -5), (-8, 5), (-8, -5), (0, 11), (0, -11)),
    *((13, 18), (13, -18), (-13, 18), (-13, -18), (0, 26), (0, -26)),
)
"""Where the end of a label that is near its mark may be: points right of and above the mark."""
BAR = 12
"""Points right of a mark that its bracket stands at."""
RING, SQUARE = 13, 15
"""Points across: what surrounds a point of the front, and one whose images are named."""
DASHES, DOTS = (0, (4, 3)), (0, (1, 2))
"""The lines of accuracy without protection, and of guessing."""
OF_ROUNDS = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
"""The lines of curves, by how often images were released."""
BEADS = 60
"""Small boxes along a line, which labels keep off."""
MARGIN = 0.12
"""Of the range of the data, on each side of it."""


def as_png(draw: Callable[[], Figure]) -> bytes:
    """The file of what `draw` makes."""
    import matplotlib

    buffer = BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own style must not change the bytes
        draw().savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def plane_png(plane: Plane) -> bytes:
    """A PNG of the plane: the same plane gives the same bytes."""
    return as_png(lambda: _figure(plane))


def curves_png(curves: Curves) -> bytes:
    """A PNG of accuracy over private images: the same curves give the same bytes."""
    return as_png(lambda: _curve_figure(curves))


def _figure(plane: Plane) -> Figure:
    figure, axes = _framed(plane.heading, plane.note, list(_entries(plane)))
    _fill(axes, _on_scale(plane))
    return figure


def _framed(said: str, note: str, entries: Sequence[Line2D]) -> tuple[Figure, Axes]:
    """A figure with its heading, its note and its legend, and room for what is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    longest = max(len(str(entry.get_label())) for entry in entries)
    columns = min(len(entries), max(1, int(ACROSS / (HANDLE + longest * LETTER))))
    heading = fill(said, width=int(ACROSS / BOLD_LETTER))
    lines = heading.count("\n") + note.count("\n") + 2, -(-len(entries) // columns)
    height = BOTTOM + UP + sum(lines) * LINE + 2 * AIR
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / height, ACROSS / WIDTH, UP / height))
    at: dict[str, Any] = {"x": LEFT / WIDTH, "va": "top", "linespacing": 1.25}
    figure.text(y=1 - AIR / height, s=heading, size=11.5, weight="bold", color=INK, **at)
    below = AIR * 1.1 + (heading.count("\n") + 1) * LINE
    figure.text(y=1 - below / height, s=note, size=9, color=FAINT, **at)
    _legend(axes, entries, columns)
    return figure, axes


def _curve_figure(curves: Curves) -> Figure:
    figure, axes = _framed(curves.heading, curves.note, list(_curve_entries(curves)))
    _style_curves(axes, curves)
    signs, dashes = _named_signs(curves.defenses), _dashes(curves)
    for curve in curves.curves:
        colour, marker = signs[curve.defense]
        _draw_curve(axes, curve.spots, marker, color=colour, linestyle=dashes[curve.rounds])
    _draw_curve(axes, curves.unprotected, "", color=FAINT, linestyle=DASHES)
    if curves.chance is not None:
        axes.axhline(curves.chance, color=FAINT, linewidth=1.1, linestyle=DOTS, zorder=1)
    return figure


def _draw_curve(axes: Axes, spots: Sequence[Spot], marker: str, **style: Any) -> None:
    """Dots that a line joins, with their intervals; hollow where nothing was found."""
    at = [spot.n for spot in spots]
    axes.plot(at, [spot.accuracy.value for spot in spots], linewidth=1.4, zorder=2, **style)
    for spot in spots:
        colour = style["color"]
        face = "white" if spot.nothing else colour
        mark: dict[str, Any] = {"marker": marker, "markersize": 6, "markerfacecolor": face}
        axes.plot(spot.n, spot.accuracy.value, color=colour, zorder=4, **mark)
        if spot.accuracy.ci:
            axes.plot((spot.n, spot.n), spot.accuracy.ci, color=colour, linewidth=1.1, alpha=0.8)


def _curve_entries(curves: Curves) -> Iterator[Line2D]:
    from matplotlib.lines import Line2D

    for name, (colour, marker) in _named_signs(curves.defenses).items():
        yield Line2D([], [], label=name, color=colour, marker=marker, markersize=6, linewidth=1.4)
    if len(curves.rounds) > 1:
        for rounds, dash in _dashes(curves).items():
            times = "once" if rounds == 1 else f"{rounds} rounds"
            yield Line2D([], [], label=times, color=INK, linestyle=dash, linewidth=1.4)
    if curves.unprotected:
        yield Line2D([], [], label="unprotected", color=FAINT, linestyle=DASHES)
    if curves.chance is not None:
        yield Line2D([], [], label=f"chance {curves.chance:.3f}", color=FAINT, linestyle=DOTS)
    if any(spot.nothing for curve in curves.curves for spot in curve.spots):
        hollow: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "linewidth": 0}
        yield Line2D([], [], label="not surely above chance", color=INK, markersize=5.5, **hollow)


def _dashes(curves: Curves) -> dict[int, Any]:
    return {rounds: OF_ROUNDS[i % len(OF_ROUNDS)] for i, rounds in enumerate(curves.rounds)}


def _style_curves(axes: Axes, curves: Curves) -> None:
    from matplotlib.ticker import NullLocator

    _bare(axes, "private images", "accuracy of the best learner")
    axes.set_xscale("log")
    axes.set_xticks(curves.sizes, [f"{n:,}" for n in curves.sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = widened([log10(n) for n in curves.sizes], MARGIN / 2)
    axes.set_xlim(10**low, 10**high)
    axes.set_ylim(*widened([0.0, *curves.accuracies], MARGIN / 2))


def _entries(plane: Plane) -> Iterator[Line2D]:
    """What the legend explains."""
    from matplotlib.lines import Line2D

    def entry(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **{"color": FAINT, **style})

    there = {point.series for point in plane.points}
    for series, (colour, marker) in _signs(plane).items():
        if series in there:
            yield entry(series, color=colour, marker=marker, markersize=7, linewidth=1.2)
    if any(point.null is not None for point in plane.points):
        dash: dict[str, Any] = {"marker": "_", "markersize": 11, "markeredgewidth": 2}
        yield entry("best guess without the release", linewidth=0, **dash)
    if any(point.front for point in plane.points):
        ring: dict[str, Any] = {"fillstyle": "none", "markersize": RING, "linewidth": 0}
        yield entry("on the front", color=INK, marker="o", **ring)
    if any(point.named for point in plane.points):
        square: dict[str, Any] = {"fillstyle": "none", "markersize": 10, "linewidth": 0}
        yield entry("images named among candidates", color=WARN, marker="s", **square)
    if plane.bar:
        bracket: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 4}
        yield entry(plane.bar, linewidth=0, alpha=0.45, **bracket)
    if plane.unprotected:
        values = ", ".join(f"{number.value:.3f}" for number in plane.unprotected)
        yield entry(f"unprotected {values}", linestyle=DASHES)
    if plane.chance is not None:
        yield entry(f"chance {plane.chance:.3f}", linestyle=DOTS)


def _signs(plane: Plane) -> dict[str, tuple[str, str]]:
    """Each series' colour and marker."""
    return _named_signs(plane.series)


def _named_signs(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name, in turn."""
    return {
        name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)
    }


def _legend(axes: Axes, entries: Sequence[Line2D], columns: int) -> None:
    axes.legend(
        handles=list(entries),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        borderaxespad=0.2,
        borderpad=0.2,
        labelspacing=0.45,
        handletextpad=0.6,
        columnspacing=1.6,
    )


def _on_scale(plane: Plane) -> Plane:
    """The plane with points that are off its scale moved above the others, and labelled so."""
    near = [v for p in plane.points if p.leakage.value < plane.off_scale for v in _span(p)]
    if not near:
        return plane
    _, edge = widened(near, MARGIN)
    points = (_moved(p, edge) if plane.beyond(p) else p for p in plane.points)
    return replace(plane, points=tuple(points))


def _moved(point: Point, edge: float) -> Point:
    label = ", ".join(filter(None, (point.label, f"{point.leakage.value:.3g} ↑")))
    return replace(point, leakage=Number(value=edge), label=label)


def _span(point: Point) -> list[float]:
    """All that is drawn of a point, upwards."""
    null = [] if point.null is None else [point.null]
    return [*ends(point.leakage), *null, *(point.bracket or ())]


def _fill(axes: Axes, plane: Plane) -> None:
    _style(axes, plane)
    faint: dict[str, Any] = {"color": FAINT, "linewidth": 1.1, "zorder": 1}
    for number in plane.unprotected:
        axes.axvline(number.value, linestyle=DASHES, **faint)
        if number.ci:
            axes.axvspan(*number.ci, color=FRAME, alpha=0.3, linewidth=0, zorder=0)
    if plane.chance is not None:
        axes.axvline(plane.chance, linestyle=DOTS, **faint)
    if plane.ground is not None:
        axes.axhline(plane.ground, **faint)
    for point in plane.points:
        if point.front:
            ring: dict[str, Any] = {"marker": "o", "fillstyle": "none", "markersize": RING}
            axes.plot(*_at(point), color=INK, zorder=5, **ring)
        if point.named:
            square: dict[str, Any] = {"marker": "s", "fillstyle": "none", "markersize": SQUARE}
            axes.plot(*_at(point), color=WARN, zorder=5, **square)
    signs = _signs(plane)
    for joined in _joined(plane):
        xs, ys = zip(*map(_at, joined), strict=True)
        axes.plot(xs, ys, color=signs[joined[0].series][0], linewidth=1.2, alpha=0.55, zorder=2)
    for point in plane.points:
        _mark(axes, point, *signs[point.series])
    _label(axes, plane)


def _at(point: Point) -> tuple[float, float]:
    return point.accuracy.value, point.leakage.value


def _joined(plane: Plane) -> Iterator[list[Point]]:
    """The points of each line."""
    return ([plane.points[i] for i in line] for line in plane.lines)


def _style(axes: Axes, plane: Plane) -> None:
    """The names of the axes, their lines, and their ranges, for all that will be drawn."""
    _bare(axes, plane.across, plane.up)
    across = [v for point in plane.points for v in ends(point.accuracy)]
    across += plane.columns
    up = [v for point in plane.points for v in _span(point)]
    up += [] if plane.ground is None else [plane.ground]
    axes.set_xlim(*widened(across, MARGIN / 2))
    axes.set_ylim(*widened(up, MARGIN))


def _bare(axes: Axes, across: str, up: str) -> None:
    """The names of both axes, and how their lines look."""
    axes.set_xlabel(across, size=10, color=INK, labelpad=7)
    axes.set_ylabel(up, size=10, color=INK, labelpad=7)
    axes.tick_params(colors=FAINT, labelsize=9, length=3)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set(color=FRAME, linewidth=0.9, visible=side in ("left", "bottom"))


def _mark(axes: Axes, point: Point, colour: str, marker: str) -> None:
    """A record with its intervals, and its best null below or above it."""
    x, y = _at(point)
    bars: dict[str, Any] = {"color": colour, "linewidth": 1.1, "alpha": 0.8, "zorder": 3}
    if point.null is not None:
        axes.plot(x, point.null, color=colour, marker="_", markersize=11, markeredgewidth=2)
        axes.plot((x, x), (point.null, y), color=colour, linewidth=0.9, alpha=0.6, linestyle=":")
    if point.accuracy.ci:
        axes.plot(point.accuracy.ci, (y, y), **bars)
    if point.leakage.ci:
        axes.plot((x, x), point.leakage.ci, **bars)
    outline: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.9}
    axes.plot(x, y, color=colour, marker=marker, markersize=7.5, zorder=4, **outline)
    if point.bracket:
        _bracket(axes, x, point.bracket, colour)


def _bracket(axes: Axes, x: float, bracket: tuple[float, float], colour: str) -> None:
    """A broad bar right of a mark from what was reached to the ceiling, with a lid on that."""
    from matplotlib.transforms import offset_copy

    beside = offset_copy(axes.transData, fig=axes.get_figure(root=True), x=BAR, units="points")
    broad: dict[str, Any] = {"linewidth": 4, "alpha": 0.45, "solid_capstyle": "butt"}
    axes.plot((x, x), bracket, color=colour, transform=beside, zorder=3, **broad)
    lid: dict[str, Any] = {"marker": "_", "markersize": 9, "markeredgewidth": 1.6}
    axes.plot(x, bracket[1], color=colour, transform=beside, zorder=3, **lid)


def _label(axes: Axes, plane: Plane) -> None:
    """Write each point's label where it covers least; one that has no room is left out."""
    whole = np.asarray(axes.get_window_extent().extents)
    signs = _signs(plane)
    taken = list(_drawn(axes, plane))
    for point in plane.points:
        if point.label:
            tried = [_written(axes, point, signs[point.series][0], place) for place in PLACES]
            boxes = np.array([each.get_window_extent().extents for each in tried])
            best, cost = best_place(boxes, np.array(taken), whole)
            width, height = boxes[best][2:] - boxes[best][:2]
            kept = [] if cost > CROWDED * width * height else [best]
            taken += [tuple(boxes[place]) for place in kept]
            for place, other in enumerate(tried):
                if place not in kept:
                    other.remove()


def _written(axes: Axes, point: Point, colour: str, place: tuple[int, int]) -> Annotation:
    from matplotlib.patheffects import withStroke

    right, above = place
    return axes.annotate(
        point.label,
        _at(point),
        place,
        textcoords="offset points",
        ha="left" if right > 0 else "right" if right < 0 else "center",
        va="bottom" if above > 0 else "top",
        size=8.5,
        color=colour,
        zorder=5,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _drawn(axes: Axes, plane: Plane) -> Iterator[Box]:
    """What marks, lines from the foot to the top, and lines between marks take."""
    for point in plane.points:
        yield from _boxes(axes, point)
    whole = axes.get_window_extent()
    for accuracy in plane.columns:
        x, _ = axes.transData.transform((accuracy, 0))
        yield x - 2, whole.y0, x + 2, whole.y1
    steps = np.arange(BEADS)[:, None]
    for joined in _joined(plane):
        for start, end in pairwise(axes.transData.transform([_at(point) for point in joined])):
            places = start + (end - start) * steps / BEADS
            yield from map(tuple, np.hstack([places - 4, places + 4]))


def _boxes(axes: Axes, point: Point) -> Iterator[Box]:
    """What a point's mark, its null's and the lines from it take."""
    at = axes.transData.transform
    x, y = at(_at(point))
    yield x - 9, y - 9, x + 9, y + 9
    if point.null is not None:
        _, guess = at((point.accuracy.value, point.null))
        yield x - 13, guess - 4, x + 13, guess + 4
        yield x - 2, min(y, guess), x + 2, max(y, guess)
    if point.leakage.ci:
        low, high = (at((0, end))[1] for end in point.leakage.ci)
        yield x - 2, low, x + 2, high
    if point.accuracy.ci:
        left, right = (at((end, 0))[0] for end in point.accuracy.ci)
        yield left, y - 2, right, y + 2
    if point.bracket:
        low, high = sorted(at((0, end))[1] for end in point.bracket)
        right = x + BAR * DPI / 72
        yield right - 10, low - 4, right + 10, high + 4

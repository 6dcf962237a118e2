"""The picture of an accuracy-leakage plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from harness.drawing.png import DPI, as_png, write_png

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox
    from numpy.typing import NDArray

    from harness.drawing.plane import Plane, Point

INK, FAINT, FRAME, GRID = "#1d232b", "#67707c", "#c9ced6", "#eceff3"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#1d232b")
"""Told apart by people who see no red or no green (Okabe and Ito)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
WIDTH, ACROSS, UP = 7.4, 6.3, 3.9  # inches: the figure, and its axes
LEFT, BOTTOM, AIR = 0.85, 0.62, 0.13
LINE, BOLD_LETTER, LETTER = 0.19, 0.107, 0.083  # inches: a line of text, a letter of it
HANDLE = 0.55  # inches: the sign before a name in the legend, and the space around both
PLACES = (
    (8, 5, "left", "bottom"),
    (8, -5, "left", "top"),
    (-8, 5, "right", "bottom"),
    (-8, -5, "right", "top"),
    (0, 11, "center", "bottom"),
    (0, -11, "center", "top"),
    (13, 18, "left", "bottom"),
    (13, -18, "left", "top"),
    (-13, 18, "right", "bottom"),
    (-13, -18, "right", "top"),
    (0, 26, "center", "bottom"),
    (0, -26, "center", "top"),
)
"""Where a label may stand: points right of and above its mark, and its alignment there."""
RING = 13
"""Points across: what surrounds a point of the front."""
DOTS = (0, (1, 2))
"""The line of guessing."""
BEADS = 60
MARGIN = 0.12
"""Of the range of the data, on each side of it."""


def draw_plane(path: Path, plane: Plane) -> None:
    """A PNG of the plane: the same plane gives the same bytes."""
    write_png(path, lambda: _figure(plane))


def plane_png(plane: Plane) -> bytes:
    """The same picture as bytes."""
    return as_png(lambda: _figure(plane))


def _figure(plane: Plane) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = _entries(plane)
    columns = _columns(entries)
    heading = fill(plane.heading, width=int(ACROSS / BOLD_LETTER))
    lines = heading.count("\n") + 2, -(-len(entries) // columns)
    height = BOTTOM + UP + sum(lines) * LINE + 2 * AIR
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / height, ACROSS / WIDTH, UP / height))
    at: dict[str, Any] = {"x": LEFT / WIDTH, "va": "top", "linespacing": 1.25}
    figure.text(y=1 - AIR / height, s=heading, size=11.5, weight="bold", color=INK, **at)
    below = AIR * 1.1 + (lines[0] - 1) * LINE
    figure.text(y=1 - below / height, s=plane.note, size=9, color=FAINT, **at)
    _legend(axes, entries, columns)
    _fill(axes, plane)
    return figure


def _entries(plane: Plane) -> list[Line2D]:
    """What the legend explains."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=colour, marker=marker, markersize=7, linewidth=1.2, label=series)
        for series, (colour, marker) in _signs(plane.points).items()
    ]
    if any(point.null is not None for point in plane.points):
        guess: dict[str, Any] = {
            "marker": "_",
            "markersize": 11,
            "markeredgewidth": 2,
            "linewidth": 0,
        }
        label = "best guess without the release"
        entries.append(Line2D([], [], color=FAINT, label=label, **guess))
    if plane.front:
        ring: dict[str, Any] = {"fillstyle": "none", "markersize": RING, "linewidth": 0}
        entries.append(Line2D([], [], color=INK, marker="o", label="on the front", **ring))
    if plane.unprotected:
        label = "unprotected " + ", ".join(f"{value:.3f}" for value, _ in plane.unprotected)
        entries.append(Line2D([], [], color=FAINT, linestyle=(0, (4, 3)), label=label))
    if plane.chance is not None:
        label = f"chance {plane.chance:.3f}"
        entries.append(Line2D([], [], color=FAINT, linestyle=DOTS, label=label))
    return entries


def _signs(points: Sequence[Point]) -> dict[str, tuple[str, str]]:
    """Each series' colour and marker."""
    series = dict.fromkeys(point.series for point in points)
    return {
        name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        for i, name in enumerate(series)
    }


def _columns(entries: Sequence[Line2D]) -> int:
    """How many columns of the longest entry fit."""
    longest = max(len(str(entry.get_label())) for entry in entries)
    return min(len(entries), max(1, int(ACROSS / (HANDLE + longest * LETTER))))


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


def _fill(axes: Axes, plane: Plane) -> None:
    plane = _on_scale(plane)
    _style(axes, plane)
    _frame(axes, plane)
    for value, interval in plane.unprotected:
        axes.axvline(value, color=FAINT, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        if interval:
            axes.axvspan(*interval, color=FRAME, alpha=0.3, linewidth=0, zorder=0)
    if plane.chance is not None:
        axes.axvline(plane.chance, color=FAINT, linewidth=1.1, linestyle=DOTS, zorder=1)
    if plane.ground is not None:
        axes.axhline(plane.ground, color=FAINT, linewidth=1.1, zorder=1)
    for point in (plane.points[i] for i in plane.front):
        at = (point.accuracy, point.leakage)
        axes.plot(*at, color=INK, marker="o", fillstyle="none", markersize=RING, zorder=5)
    signs = _signs(plane.points)
    for line in plane.lines:
        joined = [plane.points[i] for i in line]
        xs, ys = [p.accuracy for p in joined], [p.leakage for p in joined]
        axes.plot(xs, ys, color=signs[joined[0].series][0], linewidth=1.2, alpha=0.55, zorder=2)
    for point in plane.points:
        _mark(axes, point, *signs[point.series])
    _label(axes, plane, [signs[point.series][0] for point in plane.points])


def _on_scale(plane: Plane) -> Plane:
    """The plane with points that are off its scale moved above the others, and labelled so."""
    near = [_span(point) for point in plane.points if point.leakage < plane.off_scale]
    if not near or len(near) == len(plane.points):
        return plane
    low, high = min(low for low, _ in near), max(high for _, high in near)
    edge = _widened(low, high, MARGIN)[1]
    points = tuple(p if p.leakage < plane.off_scale else _moved(p, edge) for p in plane.points)
    return replace(plane, points=points)


def _moved(point: Point, edge: float) -> Point:
    label = ", ".join(filter(None, (point.label, f"{point.leakage:.3g} ↑")))
    return replace(point, leakage=edge, leakage_ci=None, label=label)


def _style(axes: Axes, plane: Plane) -> None:
    axes.set_xlabel(plane.across, size=10, color=INK, labelpad=7)
    axes.set_ylabel(plane.up, size=10, color=INK, labelpad=7)
    axes.tick_params(colors=FAINT, labelsize=9, length=3)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set(color=FRAME, linewidth=0.9, visible=side in ("left", "bottom"))


def _frame(axes: Axes, plane: Plane) -> None:
    """Set both ranges, for all that will be drawn."""
    across = [v for p in plane.points for v in (p.accuracy, *(p.accuracy_ci or ()))]
    across += [value for value, _ in plane.unprotected]
    across += [] if plane.chance is None else [plane.chance]
    spans = [_span(point) for point in plane.points]
    spans += [] if plane.ground is None else [(plane.ground, plane.ground)]
    axes.set_xlim(*_widened(min(across), max(across), MARGIN / 2))
    axes.set_ylim(*_widened(min(low for low, _ in spans), max(high for _, high in spans), MARGIN))


def _span(point: Point) -> tuple[float, float]:
    values = [point.leakage, *(point.leakage_ci or ())]
    values += [] if point.null is None else [point.null]
    return min(values), max(values)


def _widened(low: float, high: float, margin: float) -> tuple[float, float]:
    room = margin * (high - low) or 0.05 * (abs(high) or 1.0)
    return low - room, high + room


def _mark(axes: Axes, point: Point, colour: str, marker: str) -> None:
    """A record with its intervals, and its best null below or above it."""
    x, y = point.accuracy, point.leakage
    bars: dict[str, Any] = {"color": colour, "linewidth": 1.1, "alpha": 0.8, "zorder": 3}
    if point.null is not None:
        axes.plot(x, point.null, color=colour, marker="_", markersize=11, markeredgewidth=2)
        axes.plot((x, x), (point.null, y), color=colour, linewidth=0.9, alpha=0.6, linestyle=":")
    if point.accuracy_ci:
        axes.plot(point.accuracy_ci, (y, y), **bars)
    if point.leakage_ci:
        axes.plot((x, x), point.leakage_ci, **bars)
    outline: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.9}
    axes.plot(x, y, color=colour, marker=marker, markersize=7.5, zorder=4, **outline)


def _label(axes: Axes, plane: Plane, colours: Sequence[str]) -> None:
    """Write each point's label where it covers least of what is drawn already."""
    import numpy as np

    taken = [box for point in plane.points for box in _boxes(axes, point)]
    taken += [_column(axes, value) for value, _ in plane.unprotected]
    taken += [] if plane.chance is None else [_column(axes, plane.chance)]
    taken += [box for line in plane.lines for box in _beads(axes, [plane.points[i] for i in line])]
    for point, colour in zip(plane.points, colours, strict=True):
        if point.label:
            tried = [_written(axes, point, colour, place) for place in PLACES]
            boxes = [each.get_window_extent() for each in tried]
            drawn = np.array([box.extents for box in taken])
            costs = [_cost(axes, box, drawn) for box in boxes]
            best = costs.index(min(costs))
            taken.append(boxes[best])
            for other in tried[:best] + tried[best + 1 :]:
                other.remove()


def _written(axes: Axes, point: Point, colour: str, place: tuple[int, int, str, str]) -> Annotation:
    from matplotlib.patheffects import withStroke

    right, above, ha, va = place
    return axes.annotate(
        point.label,
        (point.accuracy, point.leakage),
        (right, above),
        textcoords="offset points",
        ha=ha,
        va=va,
        size=8.5,
        color=colour,
        zorder=5,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _boxes(axes: Axes, point: Point) -> list[Bbox]:
    """Pixels that a point's mark, its null's and the lines from it take."""
    from matplotlib.transforms import Bbox

    at = axes.transData.transform
    x, y = at((point.accuracy, point.leakage))
    corners = [(x - 9, y - 9, x + 9, y + 9)]
    if point.null is not None:
        _, guess = at((point.accuracy, point.null))
        corners.append((x - 13, guess - 4, x + 13, guess + 4))
        corners.append((x - 2, min(y, guess), x + 2, max(y, guess)))
    if point.leakage_ci:
        low, high = (at((0, end))[1] for end in point.leakage_ci)
        corners.append((x - 2, low, x + 2, high))
    if point.accuracy_ci:
        left, right = (at((end, 0))[0] for end in point.accuracy_ci)
        corners.append((left, y - 2, right, y + 2))
    return [Bbox.from_extents(*each) for each in corners]


def _column(axes: Axes, accuracy: float) -> Bbox:
    """Pixels of a line from the foot to the top."""
    from matplotlib.transforms import Bbox

    x, _ = axes.transData.transform((accuracy, 0))
    whole = axes.get_window_extent()
    return Bbox.from_extents(x - 2, whole.y0, x + 2, whole.y1)


def _beads(axes: Axes, joined: Sequence[Point]) -> list[Bbox]:
    """Small boxes along a line."""
    from matplotlib.transforms import Bbox

    ends = axes.transData.transform([(point.accuracy, point.leakage) for point in joined])
    beads = []
    for start, end in pairwise(ends):
        for step in range(BEADS):
            x, y = start + (end - start) * step / BEADS
            beads.append(Bbox.from_extents(x - 4, y - 4, x + 4, y + 4))
    return beads


def _cost(axes: Axes, box: Bbox, taken: NDArray[np.float64]) -> float:
    """Pixels² of a label on what is drawn, or outside the axes, which weighs more."""
    import numpy as np

    within = np.array([axes.get_window_extent().extents])
    outside = box.width * box.height - _shared(box, within)
    return _shared(box, taken) + 3 * outside


def _shared(box: Bbox, others: NDArray[np.float64]) -> float:
    """Pixels² that a box shares with others [n, 4], each given by its ends: x0, y0, x1, y1."""
    import numpy as np

    across = np.minimum(others[:, 2], box.x1) - np.maximum(others[:, 0], box.x0)
    up = np.minimum(others[:, 3], box.y1) - np.maximum(others[:, 1], box.y0)
    return float((across.clip(min=0) * up.clip(min=0)).sum())

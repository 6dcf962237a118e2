"""Pictures for people: what was private, what was released, what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from harness.drawing.png import write_png

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Image = NDArray[np.floating[Any]]

INK, FAINT, FRAME = "#1d232b", "#67707c", "#c9ced6"
CELL, GAP = 1.35, 0.1  # inches: one picture, and the space between two
LEFT, RIGHT, BOTTOM = 1.45, 0.2, 0.42
LINE, AIR = 0.17, 0.16  # inches: one line of text, and the space around a block of lines
LETTER = 0.1
CONTRAST = (1, 99)
"""Percentiles of a released image that become black and white."""


@dataclass(frozen=True)
class Column:
    """One target: `original` and `recovered` [c, h, w] in [0,1], `released` of any range.

    Images have 1 or 3 channels. What cannot be shown as an image (`released` features, say) is
    None. `guess` is the best null's image. `title` stands above, `score` below.
    """

    title: str
    original: Image
    released: Image | None
    recovered: Image | None
    score: str = ""
    guess: Image | None = None


def gallery(
    path: Path,
    original: Image,
    released: Image | None,
    recovered: Image,
    *,
    scores: Sequence[str],
    titles: Sequence[str],
    guess: Image | None = None,
    heading: str = "",
) -> None:
    """A PNG with one column per target; image stacks [k, c, h, w] as `Column` wants them.

    `titles` stand above the columns, `scores` below the recovered images.
    """
    nothing = [None] * len(original)
    shown = nothing if released is None else list(released)
    guessed = nothing if guess is None else list(guess)
    rows = zip(titles, original, shown, recovered, scores, guessed, strict=True)
    panel(path, [Column(*row) for row in rows], heading)


def panel(path: Path, columns: Sequence[Column], heading: str = "") -> None:
    """A PNG with the given columns: several targets, or one target across several records.

    Written whole or not at all; the same input gives the same bytes.
    """
    write_png(path, lambda: _draw(columns, heading))


def choose_targets(
    scores: Sequence[float], leaks_more: Literal["higher", "lower"], random: Sequence[int]
) -> list[tuple[str, int]]:
    """Titles and indices: the image that leaks most, the median one, and those at `random`.

    `scores` has one value per target; those that are NaN are never chosen by rank.
    """
    sign = -1 if leaks_more == "higher" else 1
    ranked = sorted((sign * s, i) for i, s in enumerate(scores) if s == s)  # noqa: PLR0124
    places = {"leaks most": 0, "median": len(ranked) // 2} if ranked else {}
    by_rank = [(title, ranked[place][1]) for title, place in places.items()]
    return by_rank + [("random", index) for index in random]


def _draw(columns: Sequence[Column], heading: str) -> Figure:
    from matplotlib.figure import Figure

    rows = _rows(columns)
    width = LEFT + len(columns) * (CELL + GAP) - GAP + RIGHT
    heading = fill(heading, width=int((width - LEFT) / LETTER))
    top = _height(heading) + max(_height(column.title) for column in columns) + AIR / 2
    height = top + len(rows) * (CELL + GAP) - GAP + BOTTOM
    figure = Figure(figsize=(width, height), facecolor="white")
    for r, (label, name) in enumerate(rows):
        y = height - top - CELL - r * (CELL + GAP)
        _write(figure, LEFT - 0.14, y + CELL / 2, label, ha="right", va="center", color=FAINT)
        for c, column in enumerate(columns):
            box = (LEFT + c * (CELL + GAP), y, CELL, CELL)
            _show(_place(figure, box), getattr(column, name), stretch=name == "released")
    for c, column in enumerate(columns):
        middle = LEFT + c * (CELL + GAP) + CELL / 2
        _write(figure, middle, height - top + 0.09, column.title, ha="center", va="bottom")
        _write(figure, middle, BOTTOM - 0.09, column.score, ha="center", va="top")
    _write(figure, LEFT, height - AIR, heading, ha="left", va="top", weight="bold", size=11)
    return figure


def _height(text: str) -> float:
    """Inches that lines of text take, with the space around them."""
    return (text.count("\n") + 1) * LINE + AIR if text else 0.0


def _rows(columns: Sequence[Column]) -> list[tuple[str, str]]:
    """Labels and fields of the rows that at least one column can show."""
    rows = [
        ("original", "original"),
        ("released\n(rescaled)", "released"),
        ("guessed without\nthe release", "guess"),
        ("recovered", "recovered"),
    ]
    return [row for row in rows if any(getattr(c, row[1]) is not None for c in columns)]


def _place(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Axes at a box of (left, bottom, width, height) in inches."""
    across, up = figure.get_size_inches()
    left, bottom, width, height = box
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def _write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text at a place in inches."""
    across, up = figure.get_size_inches()
    style = {"size": 9.5, "color": INK, "linespacing": 1.25, **style}
    figure.text(x / across, y / up, text, **style)


def _show(axes: Axes, image: Image | None, stretch: bool) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.8)
    if image is None:
        axes.text(0.5, 0.5, "—", ha="center", va="center", color=FAINT, transform=axes.transAxes)
        return
    axes.imshow(_pixels(image, stretch), cmap="gray", vmin=0, vmax=1, interpolation="nearest")


def _pixels(image: Image, stretch: bool) -> Image:
    """[c, h, w] as matplotlib wants it: [h, w] or [h, w, 3] in [0,1].

    A released image is stretched between its percentiles, or its noise would show as white.
    """
    import numpy as np

    pixels: Image = np.asarray(image, dtype=np.float64)
    if stretch:
        low, high = np.percentile(pixels, CONTRAST)
        pixels = (pixels - low) / max(high - low, 1e-12)
    pixels = pixels.clip(0, 1)
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)

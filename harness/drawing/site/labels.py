"""Where labels stand in a picture, so that they cover as little as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Anchor = Literal["start", "middle", "end"]

LETTER, LINE = 6.2, 12.0
"""About how wide a letter is, and how high a line: units of the picture."""
PLACES: tuple[tuple[float, float, Anchor], ...] = (
    (9, 4, "start"),
    (-9, 4, "end"),
    (0, -10, "middle"),
    (0, 18, "middle"),
    (8, -7, "start"),
    (8, 15, "start"),
    (-8, -7, "end"),
    (-8, 15, "end"),
    (12, -18, "start"),
    (12, 27, "start"),
    (-12, -18, "end"),
    (-12, 27, "end"),
)
"""How far right of and below its mark a label's foot may be, and which end of it is there."""
CROWDED = 0.3
"""A label that would lie on other things by this share of its area is left out."""


@dataclass(frozen=True)
class Box:
    """A rectangle in the picture; y points down."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def area(self) -> float:
        """Width times height."""
        return (self.right - self.left) * (self.bottom - self.top)

    def shared(self, other: Box) -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)


@dataclass(frozen=True)
class Label:
    """A text with its foot at x, y."""

    x: float
    y: float
    anchor: Anchor
    text: str


def place(
    wanted: Sequence[tuple[float, float, str]], drawn: Sequence[Box], frame: Box
) -> list[Label | None]:
    """Each text beside its point, or None where there is no room; earlier ones choose first."""
    taken, placed = list(drawn), list[Label | None]()
    for x, y, text in wanted:
        label, cost = _best(x, y, text, taken, frame)
        crowded = not text or cost > CROWDED * _box(label).area
        placed.append(None if crowded else label)
        taken += [] if crowded else [_box(label)]
    return placed


def _best(x: float, y: float, text: str, taken: Sequence[Box], frame: Box) -> tuple[Label, float]:
    tried = [Label(x + right, y + down, anchor, text) for right, down, anchor in PLACES]
    costs = [_cost(_box(label), taken, frame) for label in tried]
    least = costs.index(min(costs))
    return tried[least], costs[least]


def _box(label: Label) -> Box:
    width = LETTER * len(label.text)
    left = label.x - {"start": 0.0, "middle": width / 2, "end": width}[label.anchor]
    return Box(left, label.y - 0.8 * LINE, left + width, label.y + 0.2 * LINE)


def _cost(box: Box, taken: Sequence[Box], frame: Box) -> float:
    """The area on other things, and three times what is outside the frame."""
    return sum(map(box.shared, taken)) + 3 * (box.area - box.shared(frame))

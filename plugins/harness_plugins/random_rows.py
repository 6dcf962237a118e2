"""Random rows in turn: the same ones, in however many pieces they are asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


class RandomRows:
    """Rows that are drawn a block at a time, and given out in order.

    `draw` is called with the number of a block when its first row is wanted, and may read a stream
    then. It returns what makes the block's rows: called later, in any thread, once for each piece
    that the block falls into, with the same rows each time.
    """

    def __init__(self, block: int, draw: Callable[[int], Callable[[], Tensor]]) -> None:
        self._block = block
        self._draw = draw
        self._given = 0

    def take(self, count: int) -> Iterator[tuple[slice, Callable[[], Tensor]]]:
        """The next rows in parts: the place of each among them, and what makes it."""
        done = 0
        while done < count:
            number, used = divmod(self._given, self._block)
            if not used:
                self._make = self._draw(number)
            size = min(count - done, self._block - used)
            yield slice(done, done + size), partial(_some, self._make, slice(used, used + size))
            done += size
            self._given += size


def _some(make: Callable[[], Tensor], rows: slice) -> Tensor:
    return make()[rows]


def spans(rows: int, values: int, most: int) -> Iterator[slice]:
    """0..rows-1, of so many values each, in slices of at most `most` values, but a row at least."""
    step = max(1, most // max(1, values))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))

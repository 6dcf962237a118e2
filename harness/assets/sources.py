"""What every way of getting bytes has in common."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the bytes so far and the bytes in all (0 where unknown)."""


class SourceFailed(Exception):
    """One source did not deliver; the next one is tried. `remedy` is a command, if one helps."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy

"""How many public images are kept from training to have the last word on it."""

from __future__ import annotations

_MOST = 1000
_FEWEST = 16
"""Enough to be mixed with each other by every built-in defense."""


def held_out(count: int) -> int:
    """Of `count` public images: a tenth, but enough to be mixed; of very few images, half."""
    return min(_MOST, max(count // 10, min(_FEWEST, count // 2)))

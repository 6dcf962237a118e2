"""Ranks by what is sure: the front of all, then the front of what is left, and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.results.view import Number

T = TypeVar("T")

RULE = (
    "A row beats another where it is surely better in accuracy or in leakage (their 95% intervals "
    "are apart) and its estimate of the other is no worse, unless it alone is unverified; rows "
    "that none beats are the front and share rank 1, and each further rank is the front of the "
    "rows that are left."
)
"""What a rank is: the same sentence wherever ranks are explained."""


def surely_above(one: Number, other: Number) -> bool:
    """Whether the whole interval of one lies above that of the other; a bare value is its own."""
    return (one.ci or (one.value,) * 2)[0] > (other.ci or (other.value,) * 2)[1]


def beats(one: Sequence[Number], other: Sequence[Number]) -> bool:
    """Whether one is surely better on some axis, and its estimate on no axis worse.

    Higher is better. An interval that is wide is no merit: what counts beside the sure axis is the
    estimate. Whoever beats another is ahead of it by estimates too, so there are no rings.
    """
    axes = list(zip(one, other, strict=True))
    no_worse = all(mine.value >= theirs.value for mine, theirs in axes)
    return no_worse and any(
        mine.value > theirs.value and surely_above(mine, theirs) for mine, theirs in axes
    )


def ranks(items: Sequence[T], wins: Callable[[T, T], bool]) -> list[int]:
    """Of each, in layers: 1 where none wins against it, else one more than the last that does.

    So no two of one rank win against each other. Where some win against each other in a ring,
    they share a rank, and somebody always comes first.
    """
    n = len(items)
    reached = _closure([[i != j and wins(items[i], items[j]) for j in range(n)] for i in range(n)])
    ahead = [[i for i in range(n) if reached[i][j] and not reached[j][i]] for j in range(n)]
    found = [0] * n
    for j in sorted(range(n), key=lambda j: len(ahead[j])):
        found[j] = 1 + max((found[i] for i in ahead[j]), default=0)
    return found


def _closure(won: Sequence[Sequence[bool]]) -> list[list[bool]]:
    """Who wins against whom, directly or through others."""
    n = len(won)
    reached = [list(row) for row in won]
    for via in range(n):
        for i in range(n):
            if reached[i][via]:
                reached[i] = [a or b for a, b in zip(reached[i], reached[via], strict=True)]
    return reached

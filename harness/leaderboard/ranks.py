"""Ranks by what is sure: those that cannot be told apart share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from harness.leaderboard.view import Number

T = TypeVar("T")


def surely_above(one: Number, other: Number) -> bool:
    """Whether the whole interval of one lies above that of the other; a bare value is its own."""
    return (one.ci or (one.value,) * 2)[0] > (other.ci or (other.value,) * 2)[1]


def beats(one: Sequence[Number], other: Sequence[Number]) -> bool:
    """Whether one is surely better on some axis, and on none surely worse; higher is better."""
    axes = list(zip(one, other, strict=True))
    better = any(surely_above(mine, theirs) for mine, theirs in axes)
    return better and not any(surely_above(theirs, mine) for mine, theirs in axes)


def ranks(items: Sequence[T], wins: Callable[[T, T], bool]) -> list[int]:
    """Of each: one more than the number of others that win against it.

    With wide intervals four may win against each other in a ring: those are not told apart, so
    somebody always comes first.
    """
    n = len(items)
    won = [[i != j and wins(items[i], items[j]) for j in range(n)] for i in range(n)]
    reached = _closure(won)
    return [1 + sum(won[i][j] and not reached[j][i] for i in range(n)) for j in range(n)]


def _closure(won: Sequence[Sequence[bool]]) -> list[list[bool]]:
    """Who wins against whom, directly or through others."""
    n = len(won)
    reached = [list(row) for row in won]
    for via in range(n):
        for i in range(n):
            if reached[i][via]:
                reached[i] = [a or b for a, b in zip(reached[i], reached[via], strict=True)]
    return reached

"""Ranks: who surely beats whom, and the laws that hold for all boards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.leaderboard.ranks import beats, ranks, surely_above
from harness.leaderboard.view import Number

pytestmark = pytest.mark.core

Row = tuple[Number, Number]


def row(accuracy: float, privacy: float, reach: float = 0.0) -> Row:
    """A row on two axes, both better where higher."""
    return near(accuracy, reach), near(privacy, reach)


def near(value: float, reach: float) -> Number:
    return Number(value=value, ci=(value - reach, value + reach))


numbers = st.builds(near, st.integers(0, 9).map(float), st.integers(0, 4).map(float))
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9)


def test_a_row_is_beaten_by_one_that_is_surely_better_and_nowhere_surely_worse() -> None:
    assert beats(row(2, 1), row(1, 1))
    assert not beats(row(2, 0), row(1, 1))  # more is learned, and more leaks
    assert not beats(row(2, 1, reach=1), row(1, 1, reach=1))  # intervals touch


def test_rows_on_the_front_share_the_first_rank() -> None:
    assert ranks([row(3, 1), row(1, 3), row(2, 2), row(1, 1)], beats) == [1, 1, 1, 4]


def test_a_bare_value_is_an_interval_of_its_own() -> None:
    assert surely_above(Number(value=2.0), Number(value=1.0, ci=(0.5, 1.5)))
    assert not surely_above(Number(value=1.5), Number(value=1.0, ci=(0.5, 1.5)))


def test_four_that_beat_each_other_in_a_ring_are_not_told_apart() -> None:
    ring = [
        (near(2, 0), near(0, 0)),
        (near(1, 0), near(1, 2)),
        (near(0, 0), near(2, 0)),
        (near(1, 2), near(1, 0)),
    ]
    wins = [[beats(one, other) for other in ring] for one in ring]
    assert [sum(each) for each in wins] == [1, 1, 1, 1]
    assert ranks(ring, beats) == [1, 1, 1, 1]


@given(rows)
def test_somebody_is_always_first(found: list[Row]) -> None:
    assert min(ranks(found, beats)) == 1


@given(rows, st.randoms())
def test_ranks_do_not_depend_on_the_order(found: list[Row], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(found)))
    random.shuffle(order)
    before, after = ranks(found, beats), ranks([found[i] for i in order], beats)
    assert after == [before[i] for i in order]


@given(rows)
def test_no_two_beat_each_other(found: list[Row]) -> None:
    assert not any(beats(one, other) and beats(other, one) for one in found for other in found)


@given(rows, st.integers(0, 8))
def test_the_same_row_twice_shares_its_rank(found: list[Row], which: int) -> None:
    twin = found[which % len(found)]
    after = ranks([*found, twin], beats)
    assert after[-1] == after[which % len(found)]


@given(rows)
def test_a_row_that_beats_nobody_moves_nobody(found: list[Row]) -> None:
    last = row(-1, -1)
    assert ranks([*found, last], beats)[:-1] == ranks(found, beats)

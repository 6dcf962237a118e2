"""Ranks: who surely beats whom, and the laws that hold for all boards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.ranks import beats, ranks, surely_above
from harness.results.view import Number

pytestmark = pytest.mark.core

Row = tuple[Number, Number]


def row(accuracy: float, privacy: float, reach: float = 0.0) -> Row:
    """A row on two axes, both better where higher."""
    return near(accuracy, reach), near(privacy, reach)


def near(value: float, reach: float) -> Number:
    return Number(value=value, ci=(value - reach, value + reach))


numbers = st.builds(near, st.integers(0, 9).map(float), st.integers(0, 4).map(float))
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9)


def test_a_row_is_beaten_by_one_that_is_surely_better_and_by_estimate_nowhere_worse() -> None:
    assert beats(row(2, 1), row(1, 1))
    assert not beats(row(2, 0), row(1, 1))  # more is learned, and more leaks
    assert not beats(row(2, 1, reach=1), row(1, 1, reach=1))  # intervals touch


def test_rows_on_the_front_share_the_first_rank() -> None:
    assert ranks([row(3, 1), row(1, 3), row(2, 2), row(1, 1)], beats) == [1, 1, 1, 2]


def test_each_rank_is_the_front_of_what_is_left() -> None:
    assert ranks([row(3, 3), row(2, 2), row(1, 1), row(1, 2.5)], beats) == [1, 2, 3, 2]


def test_to_be_uncertain_is_no_merit() -> None:
    """What was measured on CIFAR-10: accuracies in per cent, gains in dB turned round."""
    mild = (Number(value=32.0, ci=(30.3, 33.7)), Number(value=-7.3, ci=(-7.8, -6.8)))
    vague = (Number(value=24.8, ci=(15.6, 33.9)), Number(value=-3.5, ci=(-4.0, -3.2)))
    some = (Number(value=16.9, ci=(12.0, 21.8)), Number(value=-1.2, ci=(-1.6, -0.8)))
    useless = (Number(value=10.8, ci=(8.5, 13.0)), Number(value=0.0, ci=(0.0, 0.0)))
    noise = (Number(value=35.6, ci=(33.5, 37.7)), Number(value=-9.5, ci=(-10.0, -9.0)))
    mixup = (Number(value=33.9, ci=(31.8, 36.0)), Number(value=-105.0, ci=(-106.6, -103.3)))
    rows = [mild, vague, some, useless, noise, mixup]
    assert not any(beats(vague, other) or beats(useless, other) for other in rows)
    assert ranks(rows, beats) == [1, 1, 1, 1, 1, 2]  # noise is surely better than mixup


def test_a_bare_value_is_an_interval_of_its_own() -> None:
    assert surely_above(Number(value=2.0), Number(value=1.0, ci=(0.5, 1.5)))
    assert not surely_above(Number(value=1.5), Number(value=1.0, ci=(0.5, 1.5)))


def test_those_that_win_against_each_other_in_a_ring_share_a_rank() -> None:
    """Attacks may, who are compared on what both met; rows cannot."""
    wins = {("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "z")}
    found = ranks(["x", "a", "b", "c", "z"], lambda one, other: (one, other) in wins)
    assert found == [1, 2, 2, 2, 3]


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
def test_no_two_of_a_rank_beat_each_other(found: list[Row]) -> None:
    ranked = list(zip(ranks(found, beats), found, strict=True))
    assert not any(beats(one, other) for i, one in ranked for j, other in ranked if i >= j)


@given(rows)
def test_who_is_not_first_is_beaten_by_one_of_the_rank_before(found: list[Row]) -> None:
    ranked = list(zip(ranks(found, beats), found, strict=True))
    for place, each in ranked:
        before = [other for i, other in ranked if i == place - 1]
        assert place == 1 or any(beats(other, each) for other in before)


@given(rows, st.integers(0, 8))
def test_the_same_row_twice_shares_its_rank(found: list[Row], which: int) -> None:
    twin = found[which % len(found)]
    after = ranks([*found, twin], beats)
    assert after[-1] == after[which % len(found)]


@given(rows)
def test_a_row_that_beats_nobody_moves_nobody(found: list[Row]) -> None:
    last = row(-1, -1)
    assert ranks([*found, last], beats)[:-1] == ranks(found, beats)

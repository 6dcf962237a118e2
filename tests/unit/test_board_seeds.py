"""Numbers over seeds, by arithmetic on paper."""

from __future__ import annotations

import pytest

from harness.results.numbers import combined, ratio, rounded, together
from harness.results.view import Number

pytestmark = pytest.mark.core


def test_one_seed_keeps_its_own_interval() -> None:
    alone = Number(value=1.0, ci=(0.25, 2.0))
    assert combined([alone]) == alone


def test_seeds_that_differ_have_the_interval_of_student() -> None:
    # mean 2, deviation √2, t(0.975, 1) = 12.7062: ± 12.7062 · √2 / √2
    found = combined([Number(value=1.0, ci=(0.9, 1.1)), Number(value=3.0, ci=(2.9, 3.1))])
    assert found == Number(value=2.0, ci=(-10.7062, 14.7062))


def test_seeds_that_agree_have_their_own_intervals_pooled() -> None:
    # ± 3 and ± 4 as of independent means: ± √(9 + 16) / 2
    found = combined([Number(value=1.0, ci=(-2.0, 4.0)), Number(value=1.0, ci=(-3.0, 5.0))])
    assert found == Number(value=1.0, ci=(-1.5, 3.5))


def test_a_ratio_adds_relative_errors_as_of_independent_numbers() -> None:
    # 3 % and 4 % make 5 %
    found = ratio(Number(value=0.5, ci=(0.485, 0.515)), Number(value=1.0, ci=(0.96, 1.04)))
    assert found == Number(value=0.5, ci=(0.475, 0.525))
    assert ratio(Number(value=0.5), Number(value=1.0, ci=(0.9, 1.1))).ci is None


def test_numbers_of_the_same_images_have_their_intervals_averaged() -> None:
    found = together([Number(value=1.0, ci=(0.0, 2.0)), Number(value=3.0, ci=(2.0, 6.0))])
    assert found == Number(value=2.0, ci=(1.0, 4.0))


def test_numbers_are_kept_with_six_digits() -> None:
    assert (rounded(1 / 3), rounded(-123456.789)) == (0.333333, -123457.0)

"""Lower bounds on epsilon, against closed forms, linear programs and coins that mean nothing."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom, norm

from harness.scoring.audit import (
    LEVEL,
    Guessed,
    approximate,
    gaussian,
    least_epsilon,
    least_mu,
    named,
    p_value,
    refuted,
)

pytestmark = pytest.mark.core


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("guesses", [1, 20, 1000])
def test_all_right_has_the_chance_of_as_many_biased_coins(epsilon, guesses):
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert p_value(Guessed(1000, guesses, guesses), epsilon, 0.0) == pytest.approx(q**guesses)


def test_a_thousand_right_guesses_prove_no_more_than_their_number():
    """q^1000 = .05 at ε = log(q / (1 − q))."""
    q = 0.05 ** (1 / 1000)
    found = least_epsilon(Guessed(1000, 1000, 1000), 0.0)
    assert found == pytest.approx(math.log(q / (1 - q)), abs=1e-9)
    assert found == pytest.approx(5.809, abs=1e-3)


def test_delta_makes_the_worst_of_its_right_guesses():
    """One coin and one guess: q + δ, as P[right] ≤ (e^ε + δ) / (1 + e^ε) can be, or worse."""
    epsilon, delta = 1.0, 0.01
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert p_value(Guessed(1, 1, 1), epsilon, delta) == pytest.approx(q + 2 * delta * (1 - q))
    assert p_value(Guessed(1, 1, 1), epsilon, delta) >= (math.exp(epsilon) + delta) / (
        1 + math.exp(epsilon)
    )


@pytest.mark.parametrize(("r", "v", "delta"), [(30, 25, 1e-3), (30, 14, 1e-2), (8, 0, 0.1)])
def test_the_correction_is_the_largest_over_laws_of_further_right_guesses(r, v, delta):
    """max P[B + F ≥ v] over laws of F with E F ≤ 2 m δ, as a linear program."""
    m, epsilon = 40, 0.7
    q = 1 / (1 + math.exp(-epsilon))
    gain = np.array([binom.sf(v - i - 1, r, q) for i in range(r + 1)])
    told = linprog(
        -gain, A_ub=[np.arange(r + 1)], b_ub=[2 * m * delta], A_eq=[np.ones(r + 1)], b_eq=[1]
    )
    assert p_value(Guessed(m, r, v), epsilon, delta) == pytest.approx(min(1, -told.fun), abs=1e-8)


def tail(m, r, v, tangents):
    """max P[right ≥ v] under R_c ≤ a W_{c−1} + b for all c and tangents (a, b) of F."""
    rows, bounds = [], []
    i = np.arange(r + 1)
    for c in range(1, v + 1):
        right = np.where(i >= c, i, 0) / m
        wrong = np.where(i >= c - 1, r - i, 0) / m
        for a, b in tangents:
            rows.append(right - a * wrong)
            bounds.append(b)
    objective = -(i >= v).astype(float)
    told = linprog(objective, A_ub=rows, b_ub=bounds, A_eq=[np.ones(r + 1)], b_eq=[1])
    return -told.fun


@pytest.mark.parametrize(("m", "r", "v"), [(10, 10, 9), (12, 9, 8), (15, 15, 13)])
def test_the_chain_is_the_linear_program_over_all_laws_of_right_guesses(m, r, v):
    """Of (ε, δ), whose F is two lines: refuted at levels above the program's value alone."""
    epsilon, delta = 0.8, 0.01
    lines = [
        (math.exp(epsilon), delta),
        (math.exp(-epsilon), 1 - math.exp(-epsilon) * (1 - delta)),
    ]
    most = tail(m, r, v, lines)
    guessed, inverse = Guessed(m, r, v), approximate(epsilon, delta)
    assert 0.001 < most < 0.999
    assert refuted(guessed, inverse, most * 1.0001)
    assert not refuted(guessed, inverse, most * 0.9999)


def test_the_chain_for_gaussian_noise_is_the_program_of_many_tangents():
    mu, x = 0.6, ndtr(np.linspace(-5, 5, 400))
    shifted = ndtri(x) + mu
    slopes = norm.pdf(shifted) / norm.pdf(ndtri(x))
    lines = [(float(a), float(b)) for a, b in zip(slopes, ndtr(shifted) - slopes * x, strict=True)]
    most = tail(12, 12, 10, lines)
    assert refuted(Guessed(12, 12, 10), gaussian(mu), most * 1.01)
    assert not refuted(Guessed(12, 12, 10), gaussian(mu), most * 0.99)


def test_all_right_is_judged_alike_by_both_estimators_of_pure_privacy():
    for epsilon in (0.3, 2.0):
        chance = p_value(Guessed(50, 50, 50), epsilon, 0.0)
        assert refuted(Guessed(50, 50, 50), approximate(epsilon, 0.0), chance * 1.0001)
        assert not refuted(Guessed(50, 50, 50), approximate(epsilon, 0.0), chance * 0.9999)


def null_audits(count, coins=1000, seed=7):
    """Scores and coins that know nothing of each other."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.normal(size=coins), rng.integers(0, 2, coins)


@cache
def alarms(guessed):
    """Whether either bound is above 0."""
    return least_epsilon(guessed, 1e-5) > 0, least_mu(guessed) > 0


@pytest.mark.parametrize("guesses", [1000, 100])
def test_null_scores_raise_few_false_alarms(guesses):
    """Of 1000 audits of coins that nobody saw, 5 % at most find any epsilon above 0.

    That is chance: what the number of right guesses has to be for an alarm is exact.
    """
    found = [alarms(named(odds, fell, guesses)) for odds, fell in null_audits(1000)]
    for which in range(2):
        least = next(v for v in range(guesses) if alarms(Guessed(1000, guesses, v))[which])
        assert 0.01 < binom.sf(least - 1, guesses, 0.5) <= LEVEL
        assert 1 <= sum(each[which] for each in found) <= 50


def test_to_choose_the_number_of_guesses_afterwards_is_no_audit():
    """The best of ten numbers, on null scores: alarms in far more than 5 % of audits."""
    numbers = range(100, 1001, 100)
    found = [
        any(alarms(named(odds, fell, guesses))[0] for guesses in numbers)
        for odds, fell in null_audits(300)
    ]
    assert np.mean(found) > 2 * LEVEL


def test_the_surest_coins_are_named_and_of_equals_the_first():
    odds, fell = [0.5, -3.0, 2.0, -2.0, 0.0], [0, 0, 1, 1, 0]
    assert named(odds, fell, 2) == Guessed(5, 2, 2)
    assert named(odds, fell, 3) == Guessed(5, 3, 2)
    assert named(odds, fell, 5) == Guessed(5, 5, 3)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_gaussian_noise_is_seldom_said_to_leak_more_than_it_does_and_nearly_as_much(mu):
    """Independent coins behind noise, the guesses most certain: a mechanism of μ-GDP."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(60):
        coins = rng.integers(0, 2, 1000)
        seen = mu * (coins - 0.5) + rng.normal(size=1000)
        surest = np.argsort(-abs(seen))[:200]
        right = int(((seen > 0) == coins)[surest].sum())
        found.append(least_mu(Guessed(1000, 200, right)))
    assert np.mean([value > mu for value in found]) <= 0.05
    assert np.median(found) > 0.4 * mu


@pytest.mark.parametrize(("coins", "guesses", "right"), [(0, 0, 0), (5, 6, 1), (5, 4, 5)])
def test_counts_that_cannot_be_are_refused(coins, guesses, right):
    with pytest.raises(ValueError, match="cannot be"):
        Guessed(coins, guesses, right)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0.1), (1, 1.0), (1, -0.1)])
def test_what_is_no_budget_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match="no budget"):
        p_value(Guessed(5, 5, 5), epsilon, delta)

"""How private a release is at most: lower bounds on epsilon from one run and its guessed coins.

Fair coins S_1 … S_m decide m inputs of one release, each between two neighbouring data sets; a
guesser who sees what leaves names `guesses` of them, a number fixed beforehand, and `right` of
these are right. A bound is what the guesser's luck cannot explain at a level: it holds whoever
guesses, and is about the adjacency that a coin's two sides have.

**(ε, δ).** Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run, 2023, theorem
5.2. Let δ be 0. Given the output and the coins before i, Bayes' rule and a fair coin make the odds
of S_i the ratio of the output's likelihoods under both sides; that averages over later coins what
(ε, 0) bounds by e^ε, so S_i is guessed with a chance of at most q = e^ε / (1 + e^ε), whatever
happened before. So P[right ≥ v] ≤ P[B ≥ v], B of the binomial law of `guesses` and q. With δ, each
side of a coin differs from an (ε, 0) pair by an event of mass δ at most; over m coins with two
sides each, those events make F ≥ 0 further guesses right, E F ≤ 2 m δ. P[B + F ≥ v] is then
largest where F is one number i with chance 2 m δ / i, and 0 else:
p = P[B ≥ v] + 2 m δ max_i P[v > B ≥ v − i] / i.

**Trade-off functions.** Mahloujifar, Melis and Chaudhuri, Auditing f-Differential Privacy in One
Run, 2024. Write F(x) = 1 − f(x) for the most that an event of chance x under one side can have
under the other: concave and growing. Let p_i be the chance of i right guesses. Flip coin j and
look, with the coins as they were, for "j is named rightly, and c or more are": with the coins as
they are now, j is named wrongly and c − 1 or more are right. Sum over j, with Jensen's inequality:
    Σ_{i≥c} i p_i / m ≤ F(Σ_{i≥c−1} (guesses − i) p_i / m).
Right ones R_c = Σ_{i≥c} i p_i / m thus need wrong ones W_{c−1} ≥ φ(R_c) below, φ the inverse of F.
Were P[right ≥ v] above `level`, the least of all mass that this takes is found from the top: all of
the level at v, then W_i = max(W_{i+1}, φ(R_{i+1})) and R_i = R_{i+1} + i (W_i − W_{i+1}) / (guesses
− i), downwards. Any law that keeps the inequalities has R_i and W_i no smaller (mass above v only
adds to R). Where this comes to more than 1 there is none, and f does not hold.
Dividing by m, and not by the guesses, is what choosing whom to name after the release costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LEVEL = 0.05
"""A bound is wrong in so many audits at most."""
_MOST = 1e3
"""Budgets beyond this say nothing any more."""
_STEPS = 60

Inverse = Callable[[float], float]
"""φ of a trade-off function: the least that an event of this chance has under the other side."""


@dataclass(frozen=True)
class Guessed:
    """What came of an audit: `right` of `guesses` among fair `coins`.

    ValueError where these are no such counts.
    """

    coins: int
    guesses: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.guesses <= self.coins or self.coins < 1:
            raise ValueError(
                f"{self.right} right of {self.guesses} guesses on {self.coins} coins cannot be"
            )


def named(odds: Any, fell: Any, guesses: int) -> Guessed:
    """What comes of naming the surest coins: arrays [coins] of odds, and of how each fell.

    Odds above 0 name a coin's second side, 1. `guesses` is said before there are odds: whoever
    picks the number that turns out best has had as many audits as numbers. Of equally sure coins
    the first are named; odds of 0 name the first side.
    """
    import numpy as np

    odds, fell = np.asarray(odds), np.asarray(fell)
    surest = np.argsort(-abs(odds), kind="stable")[:guesses]
    right = int(((odds > 0) == (fell == 1))[surest].sum())
    return Guessed(len(odds), guesses, right)


def p_value(guessed: Guessed, epsilon: float, delta: float) -> float:
    """The chance of as many right guesses under (ε, δ), at most (theorem 5.2)."""
    import numpy as np
    from scipy.special import expit
    from scipy.stats import binom

    _check(epsilon, delta)
    v, r = guessed.right, guessed.guesses
    q = float(expit(epsilon))
    luck = float(binom.sf(v - 1, r, q))
    if v == 0 or delta == 0:
        return min(1.0, luck)
    below = np.cumsum(binom.pmf(np.arange(v - 1, -1, -1), r, q))
    most = float((below / np.arange(1, v + 1)).max())
    return min(1.0, luck + 2 * guessed.coins * delta * most)


def least_epsilon(guessed: Guessed, delta: float, level: float = LEVEL) -> float:
    """The largest ε that is refuted at the level, for this δ; 0 where none is."""
    return _largest(lambda epsilon: p_value(guessed, epsilon, delta) <= level)


def refuted(guessed: Guessed, inverse: Inverse, level: float = LEVEL) -> bool:
    """Whether no mechanism of this trade-off function guesses so well at the level."""
    v, r, m = guessed.right, guessed.guesses, guessed.coins
    right, wrong = level * v / m, level * (r - v) / m
    for i in range(v - 1, -1, -1):
        more = max(wrong, inverse(right)) - wrong
        right, wrong = right + i * more / (r - i), wrong + more
        if right + wrong > r / m:
            return True
    return False


def gaussian(mu: float) -> Inverse:
    """φ of μ-GDP: Φ(Φ⁻¹(x) − μ) (Dong, Roth and Su, Gaussian Differential Privacy, 2022)."""
    from scipy.special import ndtr, ndtri

    return lambda x: float(ndtr(ndtri(min(x, 1.0)) - mu))


def approximate(epsilon: float, delta: float) -> Inverse:
    """φ of (ε, δ): the inverse of min(e^ε x + δ, 1 − e^−ε (1 − δ − x))."""
    _check(epsilon, delta)

    def inverse(x: float) -> float:
        low, high = (x - delta) * math.exp(-epsilon), 1 - delta - (1 - x) * math.exp(epsilon)
        return max(0.0, low, high)

    return inverse


def least_mu(guessed: Guessed, level: float = LEVEL) -> float:
    """The largest μ that is refuted at the level; 0 where none is."""
    return _largest(lambda mu: refuted(guessed, gaussian(mu), level))


def _check(epsilon: float, delta: float) -> None:
    if not (epsilon >= 0 and 0 <= delta < 1):
        raise ValueError(f"epsilon {epsilon} and delta {delta} are no budget")


def _largest(holds: Callable[[float], bool]) -> float:
    """The largest number from 0 on that a condition holds for, which ends once and for all."""
    if not holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > _MOST:
            return math.inf
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

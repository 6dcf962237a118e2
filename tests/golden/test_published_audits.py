"""Stored scores of 400 coins, audited here and by the code of those who published the bounds.

`audit_scores.json` has log-odds of coins behind normal noise. The numbers beside them came out of

- google-deepmind/jax_privacy, jax_privacy/auditing.py at 3740a654c45ca910a143f1d9f9c01b730c92337c:
  `_one_run_p_value` at ε = 1, `_epsilon_one_run`, `_epsilon_one_run_fdp` (Steinke, Nasr and
  Jagielski, 2023; Mahloujifar, Melis and Chaudhuri, 2024), whose roots are found to 1e-6. What it
  takes from dp_accounting, the deviation of a budget's noise, was a root of Balle and Wang's
  equation;
- facebookresearch/PrivacyGuard, privacy_guard/analysis/mia/fdp_analysis_node.py at
  3b4b846938526d147369cbbe14a7d176e1cf2341: the noise at which `audit_rh_with_cap` turns, by halving
  (it tries a thousand deviations itself); its inverse is μ.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from harness.api.gaussian import epsilon_of
from harness.scoring.audit import (
    Guessed,
    approximate,
    least_epsilon,
    least_mu,
    named,
    p_value,
    refuted,
)

pytestmark = pytest.mark.core
CLOSE = 1e-6

PUBLISHED = [
    (400, 327, 1e-5, 0.00019157112706688143, 1.281473103450668, 2.5246666777417706),
    (400, 327, 1e-3, 0.01585866197356274, 1.2394641683157277, 1.742367964638683),
    (150, 143, 1e-5, 0.00018174859525497554, 2.3629936073610027, 4.289286668689047),
    (150, 143, 1e-3, 0.01817485940608818, 2.0149606904972064, 3.071382608991262),
    (40, 40, 1e-5, 0.0005214564859323255, 2.5424568044826734, 4.075417945403725),
    (40, 40, 1e-3, 0.05178778105701301, 0.9426694295324839, 2.908029746130024),
]
"""Guesses, how many are right, δ, the chance at ε = 1, and both bounds at the level .05."""
MU = [(400, 0.6173528702281105), (150, 0.9826225597275391), (40, 0.9400458145857504)]


def stored(guesses: int) -> Guessed:
    scores = json.loads((Path(__file__).parent / "audit_scores.json").read_text(encoding="utf-8"))
    return named(scores["odds"], scores["fell"], guesses)


@pytest.mark.parametrize(("guesses", "right", "delta", "chance", "epsilon", "gaussian"), PUBLISHED)
def test_both_bounds_are_those_of_published_code(guesses, right, delta, chance, epsilon, gaussian):
    found = stored(guesses)
    assert found == Guessed(400, guesses, right)
    assert p_value(found, 1.0, delta) == pytest.approx(chance, rel=CLOSE)
    assert least_epsilon(found, delta) == pytest.approx(epsilon, abs=CLOSE)
    assert epsilon_of(least_mu(found), delta) == pytest.approx(gaussian, abs=CLOSE)


@pytest.mark.parametrize(("guesses", "mu"), MU)
def test_mu_is_that_of_the_authors_code(guesses, mu):
    assert least_mu(stored(guesses)) == pytest.approx(mu, abs=CLOSE)


@pytest.mark.parametrize("guesses", [400, 150, 40])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**5), Fraction(1, 10**3)])
def test_the_chance_is_that_of_exact_fractions(guesses, delta):
    """At ε = ln 3 every guess is right with a chance of 3/4."""
    found = stored(guesses)
    v, r = found.right, found.guesses
    mass = [Fraction(math.comb(r, k) * 3**k, 4**r) for k in range(r + 1)]
    luck = sum(mass[v:], Fraction())
    most = max(sum(mass[v - i : v], Fraction()) / i for i in range(1, v + 1))
    wanted = min(Fraction(1), luck + 2 * 400 * delta * most)
    assert p_value(found, math.log(3), float(delta)) == pytest.approx(float(wanted), rel=1e-9)


@pytest.mark.parametrize("guesses", [400, 150, 40])
def test_the_chain_is_that_of_exact_fractions(guesses):
    """(ln 3, 1/100), whose trade-off is rational: the level at which it is refuted, by halving."""
    found, m = stored(guesses), 400
    delta = Fraction(1, 100)

    def inverse(x: Fraction) -> Fraction:
        return max(Fraction(0), (x - delta) / 3, 1 - delta - 3 * (1 - x))

    def mass(level: Fraction) -> Fraction:
        v, r = found.right, found.guesses
        right, wrong = level * v / m, level * (r - v) / m
        for i in range(v - 1, -1, -1):
            before, wrong = wrong, max(wrong, inverse(right))
            right += Fraction(i, r - i) * (wrong - before)
            right = Fraction(round(right * 10**40), 10**40)  # else the digits double at each step
        return right + wrong - Fraction(r, m)

    low, high = Fraction(0), Fraction(1)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) <= 0 else (low, middle)
    turns, mine = float(low), approximate(math.log(3), 0.01)
    assert 1e-6 < turns < 1
    assert refuted(found, mine, turns * (1 + CLOSE))
    assert not refuted(found, mine, turns * (1 - CLOSE))

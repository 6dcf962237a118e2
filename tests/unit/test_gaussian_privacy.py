"""ε, δ and μ of Gaussian noise, against an integral, an accountant, and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from harness.api.gaussian import delta_of, epsilon_of
from harness_plugins.privacy.gaussian import mu_of, success


@pytest.mark.parametrize(("mu", "epsilon"), [(0.1, 0.05), (1.0, 1.0), (3.0, 4.0)])
def test_delta_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """∫ max(0, p - e^ε q) of the two densities."""

    def surplus(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x))

    edge = epsilon / mu + mu / 2
    wanted, _ = integrate.quad(surplus, edge, edge + 40)
    assert delta_of(mu, epsilon) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_and_mu_turn_delta_round(mu: float, delta: float) -> None:
    epsilon = epsilon_of(mu, delta)
    if epsilon > 0:
        assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-6)
        assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_less_noise_costs_more() -> None:
    spent = [epsilon_of(mu, 1e-5) for mu in np.geomspace(1e-3, 100, 30)]
    assert spent == sorted(spent)
    assert spent[0] == pytest.approx(0, abs=1e-2)
    assert epsilon_of(1e5, 1e-5) == math.inf


def test_a_hit_is_a_test_between_two_hypotheses() -> None:
    """The most powerful test of level κ hits with Φ(Φ⁻¹(κ) + μ): simulated."""
    rng, mu, chance = np.random.default_rng(0), 1.5, 0.02
    threshold = stats.norm.isf(chance)
    hits = (rng.normal(mu, 1, 1_000_000) > threshold).mean()
    assert success(mu, chance) == pytest.approx(hits, abs=0.002)
    assert success(0.0, chance) == pytest.approx(chance)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_no_epsilon_without_a_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        epsilon_of(1.0, delta)

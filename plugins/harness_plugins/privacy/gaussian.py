"""Gaussian differential privacy: telling N(0, 1) from N(μ, 1), in closed form.

Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, 2018, theorem 8; Dong,
Roth and Su, Gaussian Differential Privacy, 2022, corollary 2.13. Several releases with independent
noise compose to the root of the sum of their μ².
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

_LARGEST = 1e6
"""A budget beyond this says nothing any more."""


def delta_of(mu: float, epsilon: float) -> float:
    """The least δ with which a μ-GDP mechanism is (ε, δ)-DP."""
    if mu <= 0:
        return 0.0
    tail = math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
    return max(0.0, float(ndtr(-epsilon / mu + mu / 2)) - tail)


def epsilon_of(mu: float, delta: float) -> float:
    """The least ε with which a μ-GDP mechanism is (ε, δ)-DP; inf where it is beyond a million."""
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    if most > _LARGEST:
        return math.inf
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, most, xtol=1e-12))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ whose mechanism still is (ε, δ)-DP: noise of deviation sensitivity / μ."""
    most = 1.0
    while delta_of(most, epsilon) < delta:
        most *= 2
    return float(brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-9, most, xtol=1e-13))


def success(mu: float, chance: float) -> float:
    """The best chance of a hit whose prior probability is `chance` (reconstruction robustness).

    Hayes, Mahloujifar and Balle, Bounding Training Data Reconstruction in DP-SGD, 2023:
    Φ(Φ⁻¹(κ) + μ).
    """
    return float(ndtr(ndtri(chance) + mu))

"""Gaussian differential privacy: telling N(0, 1) from N(μ, 1), in closed form.

Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, 2018, theorem 8; Dong,
Roth and Su, Gaussian Differential Privacy, 2022, corollary 2.13. Several releases with independent
noise compose to the root of the sum of their μ².
"""

from __future__ import annotations

import math

_LARGEST = 1e6
"""A budget beyond this says nothing any more."""


def delta_of(mu: float, epsilon: float) -> float:
    """The least δ with which a μ-GDP mechanism is (ε, δ)-DP."""
    from scipy.special import log_ndtr, ndtr

    if mu <= 0:
        return 0.0
    tail = math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
    return max(0.0, float(ndtr(-epsilon / mu + mu / 2)) - tail)


def epsilon_of(mu: float, delta: float) -> float:
    """The least ε with which a μ-GDP mechanism is (ε, δ)-DP; inf where it is beyond a million.

    ValueError unless δ is between 0 and 1.
    """
    from scipy.optimize import brentq

    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta:g}; a mu has an epsilon for one between 0 and 1")
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + 1
    if most > _LARGEST:
        return math.inf
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, most, xtol=1e-12))

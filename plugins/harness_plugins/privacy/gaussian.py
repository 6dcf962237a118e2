"""Noise that a budget asks for, and what it is worth against reconstruction.

μ is that of Gaussian differential privacy, as in `harness.api.gaussian`.
"""

from __future__ import annotations

from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from harness.api.gaussian import delta_of


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

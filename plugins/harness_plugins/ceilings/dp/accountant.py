"""Opacus's accountant of privacy loss variables, where every step sees every image."""

from __future__ import annotations

import warnings

import numpy as np
from opacus.accountants import PRVAccountant

LARGEST = 6.0
"""μ beyond which its grid takes longer than it is worth."""
ERROR = 4e-4
"""By how much its ε may be off: it is added, so that the bound stays one."""


def composed(once: float, rounds: int, delta: float) -> float | None:
    """The upper bound on ε of `rounds` normal mechanisms of μ = `once`; None beyond its grid."""
    if once * rounds**0.5 > LARGEST:
        return None
    accountant = PRVAccountant()
    accountant.history = [(1 / once, 1.0, rounds)]  # noise multiplier, share of images, steps
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # At a share of 1 the logarithm of 1 - share is asked for, and -inf is what is meant.
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, eps_error=ERROR, delta_error=delta / 1e4))

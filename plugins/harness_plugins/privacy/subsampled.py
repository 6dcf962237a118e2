"""Budgets of Poisson-subsampled Gaussian noise, by Opacus's PRV accountant.

Gopi, Lee and Wutschitz, Numerical Composition of Differential Privacy, 2021. Neighbours differ by
one image more or less. Opacus is imported only where it is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from harness.api import UsageError

_CLOSE = 0.01
"""Share of a budget that may be left unspent."""


@cache
def noise_of(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least deviation over the sensitivity with which so many steps spend no more.

    UsageError without Opacus, and where no noise up to a million does.
    """
    with _opacus():
        from opacus.accountants.utils import get_noise_multiplier
    try:
        with _any_order():
            return float(
                get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=rate,
                    steps=steps,
                    accountant="prv",
                    epsilon_tolerance=_CLOSE * epsilon,
                )
            )
    except ValueError:
        raise UsageError(
            f"no noise keeps {steps} rows, of images drawn at a rate of {rate:.3g}, within "
            f"epsilon={epsilon:g} at delta={delta:g}; ask for a larger budget or fewer rounds"
        ) from None


@cache
def epsilon_of(noise: float, delta: float, rate: float, steps: int) -> float:
    """ε that so many steps spend. UsageError without Opacus."""
    with _opacus():
        from opacus.accountants import PRVAccountant
    accountant = PRVAccountant()
    accountant.history = [(noise, rate, steps)]
    with _any_order():
        return float(accountant.get_epsilon(delta))


@contextmanager
def _any_order() -> Iterator[None]:
    """The accountant takes a Rényi bound for the width of its grid alone: any order will do."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
        yield


@contextmanager
def _opacus() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "opacus":
            raise
        raise UsageError(
            "This budget is accounted for by Opacus, which is not installed: pip install "
            "'encoding-harness[dp]', or give the noise itself (noise=)."
        ) from None

"""From a privacy budget to noise, and from the steps taken to the budget they spent."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier

from harness.api import UsageError
from harness_plugins.defenses.dpsgd import DpSgdConfig

# Opacus stops at order 63, which cannot prove budgets below .2 at delta=1e-5.
_ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + [*range(11, 64)]
_ORDERS += [2.0**power for power in range(6, 13)]
# The noise is found so closely that it spends at least this share of the budget.
_SPENT = 0.995


@dataclass
class Budget:
    """Steps of a Poisson-subsampled Gaussian mechanism, counted as they are taken."""

    noise_multiplier: float
    clip: float
    delta: float
    sample_rate: float
    steps: int = field(default=0)

    def measures(self) -> dict[str, float]:
        """ε of the steps taken by Rényi accounting, and of one gradient of a known batch."""
        return {
            "epsilon": self._epsilon(self.sample_rate, self.steps),
            "delta": self.delta,
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip,
            "sample_rate": self.sample_rate,
            "steps": self.steps,
            "epsilon_per_gradient": self._epsilon(1.0, 1),
        }

    def _epsilon(self, sample_rate: float, steps: int) -> float:
        if not steps:
            return 0.0
        accountant = RDPAccountant()
        accountant.history = [(self.noise_multiplier, sample_rate, steps)]
        with _any_order():
            return float(accountant.get_epsilon(self.delta, alphas=_ORDERS))


def resolve(config: DpSgdConfig, *, sample_rate: float, steps: int) -> Budget:
    """The budget of a training of so many steps; one that takes none is planned as one step."""
    noise = config.noise_multiplier
    if config.epsilon is not None:
        noise = _noise_for(config.epsilon, config.delta, sample_rate, max(1, steps))
    assert noise is not None  # the config holds exactly one of both
    return Budget(noise, config.clip, config.delta, sample_rate)


def _noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    try:
        with _any_order():
            return float(
                get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=delta,
                    sample_rate=sample_rate,
                    steps=steps,
                    epsilon_tolerance=(1 - _SPENT) * epsilon,
                    alphas=_ORDERS,
                )
            )
    except ValueError:
        raise UsageError(
            f"no noise up to a million times clip keeps dpsgd within epsilon={epsilon:g} at "
            f"delta={delta:g} over {steps} steps; ask for a larger epsilon or delta, or for "
            "fewer epochs"
        ) from None


@contextmanager
def _any_order() -> Iterator[None]:
    """The search passes through noises whose best order is the first or last of the list."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
        yield

"""Theorem 4.1: how plain inversion of the mixture blows noise up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


def log_amplification(weights: Floats, partners: Integers) -> Floats:
    """[n] natural logarithm of theorem 4.1's T_i, for x~_i = w_i x_i + (1-w_i)(x_pi(i) + e_i).

    `weights` [n] are the w_i in (0,1), `partners` [n] a permutation. W⁻¹ follows each cycle:
    with ρ_i = -(1-w_i)/w_i and L the cycle's length,
    T_i = Σ_{s=1..L} Π_{m<s} ρ²_{i+m} / (1 - Πρ)². In logarithms, so that no product of a long
    cycle overflows; O(n). Infinite where W is singular.
    """
    result = np.empty(len(weights))
    for cycle in _cycles(partners):
        result[cycle] = _log_on_cycle(weights[cycle])
    return result


def _cycles(partners: Integers) -> Iterator[Integers]:
    following = partners.tolist()
    seen = [False] * len(following)
    for start in range(len(following)):
        cycle = []
        row = start
        while not seen[row]:
            seen[row] = True
            cycle.append(row)
            row = following[row]
        if cycle:
            yield np.array(cycle)


def _log_on_cycle(weights: Floats) -> Floats:
    """Logarithms of T_i along one cycle, in its order."""
    gains = 2 * (np.log1p(-weights) - np.log(weights))
    reached = np.cumsum(gains)
    before = np.concatenate([[0.0], reached[:-1]])
    total = float(reached[-1])
    ahead = np.logaddexp.accumulate(reached[::-1])[::-1]
    wrapped = np.concatenate([[-np.inf], np.logaddexp.accumulate(reached)[:-1]]) + total
    sums: Floats = np.logaddexp(ahead, wrapped) - before
    return sums - 2 * _log_determinant(total / 2, len(weights))


def _log_determinant(log_product: float, length: int) -> float:
    """Logarithm of |1 - Πρ|, where Πρ = (-1)^length · exp(log_product)."""
    if length % 2:
        return float(np.logaddexp(0.0, log_product))
    if log_product == 0:
        return -math.inf
    return max(log_product, 0.0) + math.log(-math.expm1(-abs(log_product)))

"""Theorem 4.2: from the spread of the images to the radius of the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness_plugins.defenses.singmix.rows import flat_rows
from harness_plugins.random_rows import spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness.api import SamplesOnDemand

# Pairs are measured until this many pixels have been compared: 87 000 pairs of CIFAR-10 images,
# 1 783 at 224 px. A distance deviates by a quarter of the mean, so D is known within 0.1 to 0.6 %.
_PIXELS_COMPARED = 1 << 28
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Spread:
    """`distance` D: mean distance of two random images; `variance` V: total variance."""

    distance: float
    variance: float

    @property
    def c(self) -> float:
        """D² / (2V), at most 1 (theorem 4.2)."""
        return self.distance**2 / (2 * self.variance) if self.variance else 1.0

    def factor(self, tau: float, alpha: float) -> float:
        """m_f of theorem 4.2: 0 where the bound holds without noise."""
        surplus = alpha**2 / (tau * (1 - alpha) ** 2) - 1
        return math.sqrt(max(surplus, 0.0) / (2 * self.c))

    def radius(self, tau: float, alpha: float) -> float:
        """The norm of the noise, m_f · D."""
        return self.factor(tau, alpha) * self.distance

    def bound(self, radius: float, alpha: float) -> float:
        """Theorem 4.2's bound on the signal-to-noise ratio at a radius."""
        if not self.variance:
            return 0.0
        return alpha**2 / ((1 - alpha) ** 2 * (1 + radius**2 / self.variance))


def measure_spread(private: SamplesOnDemand, resolution: int | None) -> Spread:
    """D and V of samples [n, ...], n >= 2, at a resolution, in float64.

    NumPy sums in one thread, and the pairs are always the same: every round of a release, on
    any machine, gets one and the same radius.
    """
    return Spread(_mean_distance(private, resolution), _total_variance(private, resolution))


def _mean_distance(private: SamplesOnDemand, resolution: int | None) -> float:
    pixels = _pixels(private, resolution)
    first, second = _pairs(len(private), max(1, _PIXELS_COMPARED // pixels))
    distances: list[float] = []
    for span in spans(len(first), pixels, _BLOCK):
        gap = flat_rows(private[first[span]].images, resolution).numpy().astype(np.float64)
        gap -= flat_rows(private[second[span]].images, resolution).numpy()
        distances += np.sqrt(np.einsum("ij,ij->i", gap, gap)).tolist()
    return math.fsum(distances) / len(distances)


def _pixels(private: SamplesOnDemand, resolution: int | None) -> int:
    return flat_rows(private[:1].images, resolution).shape[1]


def _pairs(n: int, most: int) -> tuple[Tensor, Tensor]:
    """All pairs of different rows, or `most` random ones where there are more."""
    if n * (n - 1) // 2 <= most:
        first, second = torch.triu_indices(n, n, offset=1)
        return first, second
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(n, (most,), generator=generator)
    ahead = torch.randint(1, n, (most,), generator=generator)
    return first, (first + ahead) % n


def _total_variance(private: SamplesOnDemand, resolution: int | None) -> float:
    """Σ over pixels of their variance, in two passes."""
    mean = sum(block.sum(0) for block in _blocks(private, resolution)) / len(private)
    squares = [
        float(np.einsum("ij,ij->", block - mean, block - mean))
        for block in _blocks(private, resolution)
    ]
    return math.fsum(squares) / len(private)


def _blocks(private: SamplesOnDemand, resolution: int | None) -> Iterator[np.ndarray]:
    for span in spans(len(private), _pixels(private, resolution), _BLOCK):
        yield flat_rows(private[span].images, resolution).numpy().astype(np.float64)

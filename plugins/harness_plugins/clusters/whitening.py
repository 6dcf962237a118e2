"""Encodings whose values vary alike and apart from each other, as those of Gaussian images do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import Samples
from harness_plugins.mixtures.prior import GaussianPrior, prior_of
from harness_plugins.signs.exercise import encode, hides_signs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness.api import Budget, Stream, View

_MOST_ROUNDS = 20
_FLOOR = 1e-5  # of the largest variance: less than that is rounding


def learn_whitening(view: View, count: int, budget: Budget) -> Mapping[str, Tensor]:
    """Mean and components of `count` public encodings, absolute where signs are hidden."""
    rng = view.rng.stream(use="whitening")
    rounds = min(_MOST_ROUNDS, -(-count // len(view.public)))
    pool = view.public[:count]
    parts = [seen_of(view, pool, rng.stream(turn=turn)) for turn in range(rounds)]
    rows = torch.cat(parts)
    labels = pool.labels.new_zeros(len(rows))
    return prior_of(Samples(rows, labels), 1, "public", budget.megabytes).tensors()


def whitened(rows: Tensor, learned: Mapping[str, Tensor]) -> Tensor:
    """[m, q] of rows [m, d]: components of public encodings, at even variance."""
    prior = GaussianPrior(**learned)
    floor = _FLOOR * prior.variances.max()
    return prior.coordinates(rows - prior.mean) * (prior.variances + floor).rsqrt()


def seen_of(view: View, samples: Samples, rng: Stream) -> Tensor:
    """[n, d] what masks leave of public encodings."""
    work = encode(view, samples, rng)
    rows = work.encodings.flatten(1)
    return rows.abs() if hides_signs(work) else rows

"""Mixing images: who is mixed with whom, by how much, and the weighted sum.

What is drawn is worked out by NumPy, in one thread: the same bits on any number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from harness.api import CellFailed, Samples
from harness_plugins.random_rows import spans

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import SamplesOnDemand, Stream

WeightLaw = Literal["uniform", "half-normal"]

# Sweeps over the colliding places of one column: a handful end it unless n is close to k.
_SWEEPS = 100
# Draws of weights before giving up: where one in a thousand is kept, half of these are enough.
_DRAWS_PER_ROW = 2_000
_DRAWS = 20_000
# Values of the images that are made at a time, to be mixed: 16 MB.
_MADE = 1 << 22


def draw_sources(n: int, k: int, rng: Stream) -> Tensor:
    """[n, k] int64: row i is mixed of i itself and k - 1 others, every image once per column.

    The law: column 0 is 0..n-1. Each further column is a uniform permutation, independent of
    the others, in which a place whose image its row already holds changes images with a
    uniformly drawn place, until there is none such: no row holds an image twice. Of the
    k(k-1)/2 such places to be expected, each moves two images: beyond that, and for n >> k^2,
    these are independent uniform permutations. Where the changes lead nowhere (n close to k)
    a column is the allowed permutation with the least sum of n^2 uniform costs.

    Raises CellFailed where n < k: a row of k different images cannot be.
    """
    if n < k:
        raise CellFailed(
            f"mixing k={k} different images needs at least {k} of them, and there are {n}; "
            "use a smaller k or more images."
        )
    sources = np.tile(np.arange(n), (k, 1))
    for column in range(1, k):
        sources[column] = _apart(rng.permutation(n).numpy(), sources[:column], rng)
    return torch.from_numpy(np.ascontiguousarray(sources.T))


def _apart(drawn: NDArray[np.int64], before: NDArray[np.int64], rng: Stream) -> NDArray[np.int64]:
    """`drawn` [n] changed until no place holds an image of `before` [columns, n]."""
    for _ in range(_SWEEPS):
        colliding = np.flatnonzero((before == drawn).any(0))
        if not len(colliding):
            return drawn
        others = rng.integers(len(drawn), len(colliding)).numpy()
        for place, other in zip(colliding, others, strict=True):
            drawn[[place, other]] = drawn[[other, place]]
    return _cheapest(before, rng)


def _cheapest(before: NDArray[np.int64], rng: Stream) -> NDArray[np.int64]:
    """The permutation [n] of least random cost that holds no image of `before` [columns, n].

    There always is one: a Latin rectangle can be extended to a Latin square (Hall).
    """
    from scipy.optimize import linear_sum_assignment

    n = before.shape[1]
    cost = rng.uniform(n, n).numpy()
    cost[np.arange(n), before] = n + 1.0
    chosen: NDArray[np.int64] = linear_sum_assignment(cost)[1]
    return chosen


def draw_weights(
    n: int,
    k: int,
    rng: Stream,
    *,
    max_weight: float,
    law: WeightLaw = "uniform",
    min_private: float = 0.0,
    privates: int | None = None,
) -> Tensor:
    """[n, k] float32, positive, rows that sum to 1 but for rounding; for k = 1 all are 1.

    Each row is k draws, uniform on [0,1] or |N(0,1)|, over their sum; it is redrawn while its
    largest weight is above `max_weight`, or its first `privates` weights sum to less than
    `min_private` (InstaHide, algorithm 2: c1 and c2). The bounds hold for the float32 values.

    Raises CellFailed where hardly any draw meets the bounds.
    """
    weights = torch.ones(n, k)
    if k == 1:
        return weights
    waiting, left = torch.arange(n), _DRAWS_PER_ROW * n + _DRAWS
    while len(waiting) and left > 0:
        left -= len(waiting)
        drawn = _normalised(rng.uniform(len(waiting), k), law)
        weights[waiting] = drawn
        refused = drawn.amax(1).double() > max_weight
        if privates is not None:
            refused |= drawn[:, :privates].double().sum(1) < min_private
        waiting = waiting[refused]
    if len(waiting):
        raise CellFailed(
            f"hardly any {k} weights meet max_weight={max_weight} and min_private={min_private}: "
            f"{len(waiting)} of {n} rows are left without; widen the bounds."
        )
    return weights


def _normalised(uniform: Tensor, law: WeightLaw) -> Tensor:
    """[n, k] float32 that sum to 1, of uniforms [n, k] in [0,1).

    One minus a uniform is in (0,1], so that no row is all zeros. |N(0,1)| = sqrt(2) erfinv(u);
    the root cancels.
    """
    drawn = 1 - uniform.numpy()
    if law == "half-normal":
        from scipy.special import erfcinv

        drawn = erfcinv(drawn) + np.finfo(np.float64).tiny
    return torch.from_numpy((drawn / drawn.sum(1, keepdims=True)).astype(np.float32))


def mix(images: Tensor, sources: Tensor, weights: Tensor) -> Tensor:
    """[n, *shape] float32: row i is the sum over j of weights[i,j] · images[sources[i,j]].

    `images` [m, *shape] float32, `sources` [n, k] int64 in 0..m-1, `weights` [n, k] float32. One
    pass over memory, on the images' device; each row is summed by one thread, j by j, so that
    the bits do not depend on how many threads there are.
    """
    rows = embedding_bag(
        sources.to(images.device),
        images.flatten(1),
        mode="sum",
        per_sample_weights=weights.to(images.device),
    )
    return rows.view(len(sources), *images.shape[1:])


def mix_samples(samples: SamplesOnDemand, sources: Tensor, weights: Tensor) -> Tensor:
    """`mix` of samples' images, of which no more are made at a time than are mixed next.

    The bits are those of `mix`.
    """
    if isinstance(samples, Samples):
        return mix(samples.images, sources, weights)
    mixed = torch.empty(len(sources), *samples.shape)
    for block in spans(len(sources), sources.shape[1] * mixed[:1].numel(), _MADE):
        rows = sources[block]
        places = torch.arange(rows.numel()).view(rows.shape)
        mixed[block] = mix(samples[rows.flatten()].images, places, weights[block])
    return mixed


def mix_labels(labels: Tensor, sources: Tensor, weights: Tensor) -> Tensor:
    """[n, classes] float32: soft labels [m, classes] mixed as their images are."""
    return mix(labels, sources, weights)

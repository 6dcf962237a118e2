"""The sign of each value, the same for all images, by what public images are like.

Two values p, q of the images that were found have the correlation that they have in public
images, but for the signs of p and q: s_p s_q C_pq. The leading eigenvector of both, multiplied
value by value, has the signs; whether all of them are to be turned, the mean image says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Samples, Stream

LARGEST = 10_000
"""Values beyond which all pairs of them are too many."""
_POWERS = 60
_SWEEPS = 30
_TINY = 1e-12


def pixel_signs(images: Tensor, public: Tensor) -> Tensor:
    """[d] of ±1 that make images [n, d] most like `public` ones [s, d].

    Where there are more than `LARGEST` values, those of the mean image.
    """
    mean = public.mean(0)
    if images.shape[1] > LARGEST:
        return _sign(images.mean(0) * mean)
    alike = _moments(public).mul_(_moments(images)).fill_diagonal_(0)
    signs = _settled(alike, _sign(_eigenvector(alike)))
    return signs * _sign((signs * images.mean(0) * mean).sum())


def share_right(public: Samples, count: int, rng: Stream) -> float:
    """Of the signs of `count` public images that were turned at random, as the others tell them."""
    rows = public.images.flatten(1)
    count = min(count, len(rows) // 2)
    turned = rng.signs(rows.shape[1]).to(rows)
    found = pixel_signs(rows[:count] * turned, rows[count:])
    return float((found == turned).float().mean())


def _moments(rows: Tensor) -> Tensor:
    """[d, d] second moments of rows [n, d], each value at unit size."""
    units = rows / rows.square().sum(0).sqrt().clamp(min=_TINY)
    return units.T @ units


def _eigenvector(matrix: Tensor) -> Tensor:
    found = matrix.abs().sum(1)
    for _ in range(_POWERS):
        found = torch.nn.functional.normalize(matrix @ found + found * 1e-3, dim=0)
    return found


def _settled(alike: Tensor, signs: Tensor) -> Tensor:
    """Each sign as most of the others would have it, until they agree."""
    for _ in range(_SWEEPS):
        before, signs = signs, _sign(alike @ signs)
        if torch.equal(before, signs):
            break
    return signs


def _sign(values: Tensor) -> Tensor:
    """±1, of 0 too."""
    return torch.where(values < 0, -torch.ones_like(values), torch.ones_like(values))

"""Conjugate gradients on many columns at once, each a system of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Solved:
    """`values` [n, B], the `steps` taken, and the largest relative `residual` of a column."""

    values: Tensor
    steps: int
    residual: float


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    diagonal: Tensor,
    right: Tensor,
    *,
    tolerance: float,
    steps: int,
) -> Solved:
    """`apply` [n, B] → [n, B] is positive definite in each column, with this `diagonal` [n, B].

    Ends when every column's residual is `tolerance` of its right side, or after `steps`.
    """
    values = torch.zeros_like(right)
    left = right.clone()
    wanted = right.norm(dim=0).clamp(min=torch.finfo(right.dtype).tiny)
    ease = diagonal.reciprocal()
    along = ease * left
    energy = (left * along).sum(0)
    tiny = torch.finfo(right.dtype).tiny
    for step in range(steps):
        residual = float((left.norm(dim=0) / wanted).max())
        if residual <= tolerance:
            return Solved(values, step, residual)
        image = apply(along)
        length = energy / (along * image).sum(0).clamp(min=tiny)
        values.addcmul_(along, length)
        left.addcmul_(image, length, value=-1)
        eased = ease * left
        now = (left * eased).sum(0)
        along = eased.addcmul_(along, now / energy.clamp(min=tiny))
        energy = now
    return Solved(values, steps, float((left.norm(dim=0) / wanted).max()))

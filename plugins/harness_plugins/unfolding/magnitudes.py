"""Absolute values of the images, from those of their mixtures (Carlini et al., last stage)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture

_RATE = 0.01
_TINY = 1e-12


@dataclass(frozen=True)
class Wishes:
    """What is asked of magnitudes beside the fit: mean(1 - |X|) and the mean total variation.

    Each with its weight; the variation is of neighbours in images of `shape` (c, h, w).
    """

    spread: float
    tv: float
    shape: tuple[int, ...]

    def pull(self, images: Tensor) -> Tensor:
        """Gradient [n, d] at images [n, d], of absolute values."""
        pulled = torch.full_like(images, -self.spread / images.numel())
        if self.tv:
            slopes = _slopes(images.abs().view(-1, *self.shape)).view_as(images)
            pulled += slopes * (self.tv / images.numel())
        return pulled.mul_(images.sign())


def _slopes(magnitudes: Tensor) -> Tensor:
    """Gradient of the sum of absolute differences of neighbours, both ways, [n, c, h, w]."""
    slopes = torch.zeros_like(magnitudes)
    for axis in (2, 3):
        steps = magnitudes.diff(dim=axis).sign()
        slopes.narrow(axis, 1, steps.shape[axis]).add_(steps)
        slopes.narrow(axis, 0, steps.shape[axis]).sub_(steps)
    return slopes


def magnitudes_of(
    seen: Tensor, mixture: Mixture, steps: int, wishes: Wishes, stepped: Callable[[int], None]
) -> Tensor:
    """|X| [n, d] that minimises mean((|X~| - |W X|)^2) and the `wishes`, by Adam.

    `seen` [rows, d] are |X~|. The start is the weighted mean of the rows that hold each image:
    exact where nothing is mixed. From zeros, where Carlini et al. start, nothing would move:
    both terms are flat there.
    """
    weight = mixture.gather(torch.ones_like(seen[:, :1])).clamp(min=_TINY)
    images = (mixture.gather(seen) / weight).requires_grad_()
    images.grad = torch.zeros_like(images)
    adam = torch.optim.Adam([images], lr=_RATE)
    with torch.no_grad():
        for step in range(steps):
            mixed = mixture.apply(images)
            pull = (mixed.abs() - seen) * mixed.sign() * (2 / seen.numel())
            images.grad.copy_(mixture.gather(pull))
            images.grad.add_(wishes.pull(images))
            adam.step()
            stepped(step + 1)
    return images.detach().abs()

"""Absolute values of the images, from those of their mixtures (Carlini et al., last stage)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture

_RATE = 0.01
_TINY = 1e-12


def magnitudes_of(
    seen: Tensor, mixture: Mixture, steps: int, spread: float, stepped: Callable[[int], None]
) -> Tensor:
    """|X| [n, d] that minimises mean((|X~| - |W X|)^2) + spread mean(1 - |X|), by Adam.

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
            images.grad.sub_(images.sign(), alpha=spread / images.numel())
            adam.step()
            stepped(step + 1)
    return images.detach().abs()

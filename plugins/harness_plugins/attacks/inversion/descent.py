"""Descent on many images at once, each a problem of its own, several times over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.inversion.starts import from_domain, held, noise_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from harness.api import Progress, View
    from harness_plugins.attacks.inversion import InversionConfig

    Loss = Callable[[Tensor, Tensor], Tensor]

_VALUES = 2**22
"""Values of images that descend together: networks hold some hundred times as many."""
_MOST = 512


@dataclass(frozen=True)
class Found:
    """`images` [n, *shape], standardised and valid; `loss` [n], infinite where all diverged.

    `diverged` counts descents that ended in no number, over images and restarts.
    """

    images: Tensor
    loss: Tensor
    diverged: int


def restarted(
    loss_of: Loss,
    released: Tensor,
    start: Tensor,
    config: InversionConfig,
    view: View,
    progress: Progress,
) -> Found:
    """The restart of the lowest loss for each image; the truth has no say in it.

    `released` [n, ...] features, `start` [n, *view.shape] in the config's domain.
    """
    best = Found(torch.zeros_like(start), start.new_full((len(start),), math.inf), 0)
    for restart in range(config.restarts):
        beginning = start + noise_of(view, config, restart)

        def told(part: float, restart: int = restart) -> None:
            done = restart * config.steps + round(part * config.steps)
            progress(done, config.restarts * config.steps)

        images, loss = _all(loss_of, released, beginning, config, view, told)
        best = _better(best, images, loss)
    images = view.scale.clamp(from_domain(view, config, best.images))
    return Found(images, best.loss, best.diverged)


def _better(best: Found, images: Tensor, loss: Tensor) -> Found:
    alive = loss.isfinite() & images.flatten(1).isfinite().all(1)
    wins = alive & (loss < best.loss)
    chosen = wins.view(-1, *[1] * (images.dim() - 1))
    diverged = best.diverged + int((~alive).sum())
    return Found(
        torch.where(chosen, images, best.images), torch.where(wins, loss, best.loss), diverged
    )


def _all(
    loss_of: Loss,
    released: Tensor,
    start: Tensor,
    config: InversionConfig,
    view: View,
    told: Callable[[float], None],
) -> tuple[Tensor, Tensor]:
    """One descent for every image, in chunks that bound the memory; images and losses [n]."""
    size = max(1, min(_MOST, _VALUES // max(1, start[0].numel()))) if len(start) else 1
    parts = list(zip(released.split(size), start.split(size), strict=True))
    ends = []
    for number, (asked, begun) in enumerate(parts):

        def step(part: float, number: int = number) -> None:
            told((number + part) / len(parts))

        ends.append(descend(loss_of, asked, begun, config, view, step))
    return torch.cat([images for images, _ in ends]), torch.cat([loss for _, loss in ends])


def descend(
    loss_of: Loss,
    released: Tensor,
    start: Tensor,
    config: InversionConfig,
    view: View,
    told: Callable[[float], None],
) -> tuple[Tensor, Tensor]:
    """Images [b, *shape] in the config's domain after all steps, and their losses [b].

    The sum of the images' losses is minimised, so that no image moves another.
    """
    images = start.clone().requires_grad_()
    optimizer = _optimizer(images, config)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, _schedule(config))
    for step in range(config.steps):
        (images.grad,) = torch.autograd.grad(loss_of(images, released).sum(), images)
        optimizer.step()
        rate.step()
        if config.clamp:
            with torch.no_grad():
                images.copy_(held(view, config, images))
        told((step + 1) / config.steps)
    with torch.no_grad():
        return images.detach(), loss_of(images, released)


def _optimizer(images: Tensor, config: InversionConfig) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.SGD
    return kind([images], lr=config.lr, weight_decay=config.weight_decay)


def _schedule(config: InversionConfig) -> Callable[[int], float]:
    if config.schedule == "none":
        return lambda _: 1.0
    return lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / config.steps)))

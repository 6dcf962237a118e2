"""Minimising many independent losses at once; a problem that diverges disturbs no other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    LossOf = Callable[[list[Tensor]], Tensor]
    Hold = Callable[[list[Tensor]], None]
    Stepped = Callable[[int], None]

MILESTONES = (3 / 8, 5 / 8, 7 / 8)
"""Parts of a search after which the rate is a tenth of what it was (Geiping et al. 2020)."""


@dataclass(frozen=True)
class Found:
    """Variables [P, ...] each, and the loss [P] they reach: infinite where a problem diverged."""

    variables: list[Tensor]
    losses: Tensor


def descend(
    loss_of: LossOf,
    start: list[Tensor],
    *,
    steps: int,
    lr: float,
    signed: bool,
    hold: Hold,
    stepped: Stepped,
) -> Found:
    """Adam, on the signs of derivatives if `signed`; `hold` puts variables back into range.

    `loss_of` gives [P] for variables [P, ...] each.
    """
    variables = [each.clone().requires_grad_() for each in start]
    adam = torch.optim.Adam(variables, lr=lr)
    milestones = [max(1, math.ceil(part * steps)) for part in MILESTONES]
    schedule = torch.optim.lr_scheduler.MultiStepLR(adam, milestones, gamma=0.1)
    alive = torch.ones(len(start[0]), dtype=torch.bool, device=start[0].device)
    for step in range(steps):
        losses = loss_of(variables)
        pulls = torch.autograd.grad(losses.sum(), variables)
        alive &= losses.detach().isfinite()
        for variable, pull in zip(variables, pulls, strict=True):
            alive &= pull.flatten(1).isfinite().all(1)
            usable = pull.nan_to_num(0, 0, 0)
            variable.grad = usable.sign_() if signed else usable
        adam.step()
        schedule.step()
        with torch.no_grad():
            hold(variables)
        stepped(step + 1)
    with torch.no_grad():
        losses = loss_of(variables)
    ended = [variable.detach() for variable in variables]
    return Found(ended, losses.where(alive & losses.isfinite(), torch.inf))

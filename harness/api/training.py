"""How a recipe trains: its optimiser and its rate over time. Needs torch, unlike `harness.api`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

import torch
from torch import nn

from harness.api.plugins import Recipe

OPTIMISERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
}


def optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser over all of the model's parameters; `sgd` has momentum .9."""
    make = OPTIMISERS[recipe.optimizer]
    fused = next(model.parameters()).device.type in {"cpu", "cuda"}
    return make(
        model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=fused or None
    )


SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "cosine": lambda part: (1 + math.cos(math.pi * part)) / 2,
    "step": lambda part: 0.1 ** ((part >= 0.5) + (part >= 0.75)),
}
"""The share of the rate after each part, in [0,1], of a training.

`step` divides by ten half and three quarters of the way (InstaHide: epochs 100 and 150 of 200).
"""


def rate(recipe: Recipe, steps: int) -> Callable[[int], float]:
    """The share of the rate at each step of a training of so many `steps`."""
    shape = SCHEDULES[recipe.schedule]
    return lambda step: shape(min(1.0, step / max(1, steps)))


def spans(n: int, size: int) -> list[slice]:
    """0..n-1 cut into slices of `size`; a last row alone joins the slice before it.

    BatchNorm has no variance to compute from a batch of one.
    """
    starts = list(range(0, n, size)) or [0]
    if len(starts) > 1 and n - starts[-1] == 1 and size > 1:
        starts.pop()
    return [slice(a, b) for a, b in pairwise([*starts, n])]

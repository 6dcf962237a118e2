"""How networks are trained: a recipe's optimiser and rate, the loop, and what it computes in.

Needs torch, unlike `harness.api`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from harness.api.plugins import Recipe
from harness.api.precision import Precision

Batch = TypeVar("Batch")

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


def descend(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    loss_of: Callable[[Batch], Tensor],
    *,
    schedule: LRScheduler | None = None,
    longest: float | None = None,
    precision: Precision = "float32",
    before_step: Callable[[], None] | None = None,
) -> Iterator[Tensor]:
    """Train `network`, a step for each batch, and say the loss of each, which has no gradient.

    Steps are taken as losses are asked for: between two of them the caller may look at the
    network, in evaluation mode too. `longest` is the norm that gradients of all parameters are
    held to; `before_step` may change them after that.
    """
    with computing(network, precision):
        for batch in batches:
            network.train()
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            if longest is not None:
                nn.utils.clip_grad_norm_(network.parameters(), longest)
            if before_step is not None:
                before_step()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            yield loss.detach()


@contextmanager
def computing(network: nn.Module, precision: Precision) -> Iterator[None]:
    """Let `network` compute in this precision while it is in training mode.

    Its weights and what it answers stay float32, and so does all that is done to the answers. Of a
    ModuleList each network by itself.
    """
    with ExitStack() as undone:
        if precision == "bfloat16":
            parts = network if isinstance(network, nn.ModuleList) else [network]
            for part in parts:
                undone.enter_context(_in_bfloat16(part))
        yield


@contextmanager
def _in_bfloat16(network: nn.Module) -> Iterator[None]:
    entered: list[torch.autocast] = []

    def enter(module: nn.Module, _: Any) -> None:
        if module.training:
            device = next(module.parameters()).device.type
            entered.append(torch.autocast(device, dtype=torch.bfloat16))
            entered[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(_module: nn.Module, _: Any, answer: Any) -> Any:
        if not entered:
            return answer
        entered.pop().__exit__(None, None, None)
        return _in_float32(answer)

    norms = [part for part in network.modules() if isinstance(part, nn.GroupNorm)]
    handles = [
        network.register_forward_pre_hook(enter),
        network.register_forward_hook(leave, always_call=True),
        *(norm.register_forward_pre_hook(_plainly_laid_out) for norm in norms),
        *(norm.register_forward_hook(_laid_out_for_convolutions) for norm in norms),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _plainly_laid_out(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of bfloat16 in channels-last, torch's GroupNorm takes several times as long as a copy."""
    return tuple(each.contiguous() for each in given)


def _laid_out_for_convolutions(_: nn.Module, _given: Any, answer: Tensor) -> Tensor:
    """As before again."""
    return answer.contiguous(memory_format=torch.channels_last) if answer.ndim == 4 else answer


def _in_float32(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return tuple(map(_in_float32, answer))
    return answer.float() if isinstance(answer, Tensor) else answer

"""Training against the metric, with a held-out slice that has the last word."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from harness.api.training import descend

if TYPE_CHECKING:
    from torch import Tensor, nn

    from harness.api.precision import Precision

# A squared error a pixel below this (40 dB) is as good as none: log would chase it for ever.
_ERROR_FLOOR = 1e-4
# Images of one exercise: enough to meet as in a release, few enough for the memory at 224 px.
_GROUP = 2000
_SHARES = tuple(step / 20 for step in range(21))


def log_error(images: Tensor, truth: Tensor) -> Tensor:
    """[n] natural logarithm of the squared error a pixel: minus the SNR, up to a constant."""
    error = (images - truth).flatten(1).square().mean(1)
    return (error + _ERROR_FLOOR).log()


def snr_db(images: Tensor, truth: Tensor) -> float:
    """Mean over images of 10·log10(Σx² / Σ(x−x̂)²), capped at 120 dB each."""
    error = (images - truth).flatten(1).square().sum(1).clamp(min=1e-12)
    signal = truth.flatten(1).square().sum(1).clamp(min=1e-12)
    return float((10 * (signal / error).log10()).clamp(-120, 120).mean())


def best_share(start: Tensor, change: Tensor, truth: Tensor, clamp: Clamp) -> tuple[float, float]:
    """The share s in [0,1] of a change that serves best, and the SNR of start + s·change."""
    scored = [(snr_db(clamp(start + share * change), truth), share) for share in _SHARES]
    score, share = max(scored, key=lambda pair: (pair[0], -pair[1]))
    return share, score


def schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """A short warm-up, then a cosine to zero over `steps` steps."""
    warm = max(1, steps // 20)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def groups(order: Tensor) -> tuple[Tensor, ...]:
    """An epoch's order of images cut into near-equal groups; each is one exercise."""
    return order.chunk(-(-len(order) // _GROUP))


def steps_of_an_epoch(images: int, batch: int) -> int:
    """How many steps an epoch in groups takes."""
    return sum(-(-len(group) // batch) for group in groups(torch.empty(images)))


def train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Tensor],
    loss_of: Callable[[Tensor], Tensor],
    scheduler: torch.optim.lr_scheduler.LambdaLR | None = None,
    *,
    precision: Precision,
) -> None:
    """One pass: `loss_of` gives the loss of the rows it is asked for.

    With a scheduler, steps are also held to a gradient norm of one.
    """
    longest = None if scheduler is None else 1.0
    for _ in descend(
        network,
        optimizer,
        batches,
        loss_of,
        schedule=scheduler,
        longest=longest,
        precision=precision,
    ):
        pass


def channels_last(network: nn.Module) -> None:
    """Lay out a network's filters so that a CPU is a fifth faster, whatever inputs look like."""
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def snapshot(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights, by name, laid out plainly as files want them."""
    plain = torch.contiguous_format
    state = network.state_dict()
    return {f"net.{name}": value.clone(memory_format=plain) for name, value in state.items()}


def restore(network: nn.Module, prepared: dict[str, Tensor]) -> None:
    """Load what `snapshot` kept, and prepare for use."""
    kept = {name[4:]: value for name, value in prepared.items() if name.startswith("net.")}
    network.load_state_dict(kept)
    network.eval()


if TYPE_CHECKING:
    Clamp = Callable[[Tensor], Tensor]

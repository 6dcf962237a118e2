"""The one training loop: every victim, whatever it is trained on, goes through `fit`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from harness.api import CellFailed, Loader, Progress, Recipe, Stream, Victim
from harness.api.plugins import silent
from harness.api.precision import Precision
from harness.api.training import descend, optimiser, rate, spans
from harness.rng import seeded
from harness.running.release import Stack
from harness.sandbox.rebuilding import cut_at

Batch = tuple[Tensor, Tensor]


def fresh(
    victim: Victim[Any],
    shape: tuple[int, ...],
    classes: int,
    stream: Stream,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """The victim with initial weights drawn on the CPU: the same on every device.

    UsageError where its recipe names a cut that it has not, whoever may come to need it.
    """
    with seeded(stream.stream(what="initial weights"), torch.device("cpu")):
        model = victim.build(shape, classes)
    if victim.config.cut:
        cut_at(model, victim.config.cut)
    return model.to(device=device, dtype=dtype)


class Batches:
    """The material of one training, on its device: each iteration is one epoch, reshuffled.

    `images` [T,n,*shape] and soft `labels` [T,n,classes]; epoch e reads round e mod T. One round
    stays on the device; of several, only the one in use is there.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.batch_size = batch_size
        self.generator = generator
        self._device, self._dtype = device, dtype
        one = len(images) == 1
        self.images = self._here(images) if one else images
        self.labels = self._here(labels) if one else labels
        self.epoch = 0

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self._dtype)

    @property
    def examples(self) -> int:
        """Rows of one round."""
        return self.images.shape[1]

    def __len__(self) -> int:
        return len(spans(self.examples, self.batch_size))

    def __iter__(self) -> Iterator[Batch]:
        order = torch.randperm(self.examples, generator=self.generator)
        return self.epoch_of(order[span] for span in spans(self.examples, self.batch_size))

    def epoch_of(self, batches: Iterable[Tensor]) -> Iterator[Batch]:
        """The next round in the given batches of row numbers."""
        round_ = self.epoch % len(self.images)
        self.epoch += 1
        images, labels = self._here(self.images[round_]), self._here(self.labels[round_])
        for rows in batches:
            here = rows.to(images.device)
            yield images[here], labels[here]


@contextmanager
def objective(
    model: nn.Module, blocks: nn.Sequential, cut: str, stack: Stack
) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
    """The loss of one batch: soft-label cross entropy and the stack's penalties on h(x).

    -Σ_c y_c log softmax(f(x))_c, averaged over the batch (singularized mixup, equation 7).
    `model` is `blocks`, or whatever a defense wrapped around them.
    """
    if not stack.penalties:
        yield lambda images, labels: cross_entropy(model(images), labels)
        return
    h, _ = cut_at(blocks, cut)
    hidden: list[Tensor] = []
    handle = h[-1].register_forward_hook(lambda *passed: hidden.append(passed[-1]))

    def penalised(images: Tensor, labels: Tensor) -> Tensor:
        loss = cross_entropy(model(images), labels)
        seen = hidden.pop()
        return sum((guard.penalty(seen, labels) for guard in stack.penalties), start=loss)

    try:
        yield penalised
    finally:
        handle.remove()


def protect(
    gradients: Mapping[str, Tensor], stack: Stack, streams: Sequence[Stream]
) -> Mapping[str, Tensor]:
    """Gradients by parameter name, through the stack's gradient defenses in order."""
    for (name, defense), rng in zip(stack.gradient, streams, strict=True):
        protected = defense.protect(gradients, rng)
        _require_alike(name, gradients, protected)
        gradients = protected
    return gradients


def _require_alike(name: str, given: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> None:
    wrong = [key for key in given if key not in got or got[key].shape != given[key].shape]
    if wrong or len(got) != len(given):
        raise CellFailed(
            f"defense '{name}' must return each gradient it was given, in its shape; "
            f"wrong: {', '.join(wrong or sorted(set(got) - set(given)))}"
        )


def gradient_streams(stack: Stack, stream: Stream, **axes: str | int) -> list[Stream]:
    """One secret stream for each gradient defense of the stack."""
    return [
        stream.stream(what="protect", defense=name, position=position, **axes)
        for position, (name, _) in enumerate(stack.gradient)
    ]


def fit(
    model: nn.Sequential,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    stream: Stream,
    *,
    device: torch.device,
    stack: Stack | None = None,
    stop_after: int | None = None,
    precision: Precision = "float32",
    progress: Progress = silent,
) -> nn.Sequential:
    """Train `model` (in place, returned in evaluation mode) as the recipe says.

    `images` [T,n,*shape] and soft `labels` [T,n,classes]. The stack's training defenses prepare
    the loop and add their penalties, its gradient defenses act on each batch's gradients.
    `stop_after` ends early, at that epoch of the recipe's schedule; 0 trains nothing.
    On CUDA, and in bfloat16, the loop runs channels-last.
    Raises `CellFailed` when the loss is no number any more.
    """
    stack = stack or Stack()
    dtype = next(model.parameters()).dtype
    if device.type == "cuda" or precision == "bfloat16":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = stream.stream(what="order").generator()
    material = Batches(
        images,
        labels,
        batch_size=recipe.batch_size,
        generator=generator,
        device=device,
        dtype=dtype,
    )
    model.train()
    with seeded(stream.stream(what="global"), device):
        _run(
            model,
            material,
            recipe,
            stack,
            stream,
            epochs=recipe.epochs if stop_after is None else stop_after,
            precision=precision,
            progress=progress,
        )
    return model.eval()


def _run(
    blocks: nn.Sequential,
    material: Batches,
    recipe: Recipe,
    stack: Stack,
    stream: Stream,
    *,
    epochs: int,
    precision: Precision,
    progress: Progress,
) -> None:
    model, optimizer, loader = _prepared(
        blocks, optimiser(blocks, recipe), material, stack, epochs=epochs, stream=stream
    )
    schedule = LambdaLR(optimizer, rate(recipe, recipe.epochs * len(material)))
    streams = gradient_streams(stack, stream)
    protect_all = partial(_protect_in_place, blocks, stack, streams) if stack.gradient else None
    with objective(model, blocks, recipe.cut, stack) as loss_of:
        for epoch in range(1, epochs + 1):
            losses = descend(
                model,
                optimizer,
                loader,
                lambda batch: loss_of(*batch),
                schedule=schedule,
                precision=precision,
                before_step=protect_all,
            )
            loss = _mean(losses)
            _require_finite(loss, epoch, recipe)
            progress(epoch, epochs, f"loss {loss:.3f}")


def _mean(losses: Iterable[Tensor]) -> float:
    """Of one epoch. They are read at its end: reading each would wait for the device."""
    found = list(losses)
    return torch.stack(found).mean().item() if found else 0.0


def _protect_in_place(blocks: nn.Sequential, stack: Stack, streams: Sequence[Stream]) -> None:
    parameters = {name: p for name, p in blocks.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    for name, gradient in protect(gradients, stack, streams).items():
        parameters[name].grad = _laid_out_like(parameters[name], gradient)


def _laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """Fused optimisers read both by the parameter's strides, and are silently wrong elsewhere."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _prepared(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
    stack: Stack,
    *,
    epochs: int,
    stream: Stream,
) -> tuple[nn.Module, torch.optim.Optimizer, Loader]:
    """The parts of the loop as the stack's training defenses want them, one after another."""
    for name, defense in stack.training:
        rng = stream.stream(what="prepare", defense=name)
        model, optimizer, loader = defense.prepare(model, optimizer, loader, epochs=epochs, rng=rng)
    return model, optimizer, loader


def _require_finite(loss: float, epoch: int, recipe: Recipe) -> None:
    if not math.isfinite(loss):
        raise CellFailed(
            f"the victim's training diverged: its loss was {loss} in epoch {epoch} of "
            f"{recipe.epochs} ({recipe.optimizer}, lr={recipe.lr:g}); try a smaller lr"
        )


class EpochClock:
    """Progress that also tells how long a training takes, without what only its start costs."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress
        self._ticks = [time.perf_counter()]

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """One more epoch is over."""
        self._ticks.append(time.perf_counter())
        self._progress(done, total, note)

    @property
    def seconds(self) -> float:
        """The median epoch but for the first, times the epochs; 0 where there is no second.

        The first pays for libraries that initialise.
        """
        epochs = [after - before for before, after in pairwise(self._ticks)]
        return median(epochs[1:]) * len(epochs) if len(epochs) > 1 else 0.0


def state(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name: copies on the CPU, contiguous."""
    return {
        name: value.detach().to("cpu", copy=True).contiguous()
        for name, value in model.state_dict().items()
    }


BATCH = 512
"""Inputs that go through a module at a time."""


@torch.no_grad()
def outputs(module: Callable[[Tensor], Tensor], images: Tensor, device: torch.device) -> Tensor:
    """`module` of `images` [n,*shape], computed on `device`, returned on the CPU as float32."""
    batches = [module(images[span].to(device)) for span in spans(len(images), BATCH)]
    return torch.cat([batch.float().cpu() for batch in batches])


def correct(logits: Tensor, labels: Tensor) -> int:
    """How many rows of `logits` [n,classes] are largest at their label [n]."""
    return int((logits.argmax(dim=1) == labels).sum())

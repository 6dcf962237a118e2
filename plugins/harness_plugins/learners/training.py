"""Networks trained on a release by their victim's recipe, with inputs brought to one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import update_bn

from harness.api import CellFailed
from harness.api.training import descend, optimiser, rate, spans
from harness_plugins.resizing import fit_images, resize
from harness_plugins.victims.normalisation import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness.api import Lesson, Progress

PUBLIC = 4096
"""Public images that statistics are recomputed on, at most."""
BATCH = 256


@dataclass(frozen=True)
class Inputs:
    """How encodings and images are shown to a network.

    Encodings of another size than the images are resized to theirs, which takes off the noise
    between their pixels; `magnitudes`: absolute values, where signs are random. All are divided
    by `deviation`, that of the first round's values.
    """

    lesson: Lesson
    magnitudes: bool
    deviation: float = 1.0

    def encodings(self, encodings: Tensor) -> Tensor:
        """[b, *shape] of encodings [b, *released shape]."""
        shown = encodings
        if self.lesson.release.shape != self.lesson.shape:
            shown = fit_images(encodings, self.lesson.shape)
        return (shown.abs() if self.magnitudes else shown) / self.deviation

    def images(self, images: Tensor) -> Tensor:
        """[b, *shape] of images, by the way that encodings took."""
        shape = self.lesson.release.shape
        return self.encodings(images if shape == self.lesson.shape else resize(images, *shape[1:]))


def inputs_of(lesson: Lesson, *, magnitudes: bool) -> Inputs:
    """On the scale of the first round."""
    unscaled = Inputs(lesson, magnitudes)
    total = squares = count = 0.0
    for encodings, _ in lesson.release.pieces(0):
        shown = unscaled.encodings(encodings)
        total += float(shown.sum(dtype=torch.float64))
        squares += float(shown.square().sum(dtype=torch.float64))
        count += shown.numel()
    variance = squares / count - (total / count) ** 2
    return Inputs(lesson, magnitudes, math.sqrt(variance) if variance > 0 else 1.0)


def fresh(lesson: Lesson) -> nn.Sequential:
    """The lesson's victim for images, with weights of torch's own generator."""
    return lesson.victim.build(lesson.shape, lesson.classes).to(lesson.device)


def train(model: nn.Sequential, lesson: Lesson, inputs: Inputs, progress: Progress) -> Tensor:
    """Train by the victim's recipe, epoch e on round e mod T, and leave in evaluation mode.

    Returns the shares of classes [classes] in the soft labels of the first round. CellFailed
    where the loss is no number any more.
    """
    recipe, rounds = lesson.victim.config, lesson.release.rounds
    if lesson.precision == "bfloat16":
        model.to(memory_format=torch.channels_last)
    steps = len(spans(lesson.release.rows, recipe.batch_size))
    optimizer = optimiser(model, recipe)
    schedule = LambdaLR(optimizer, rate(recipe, recipe.epochs * steps))

    def loss_of(batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    rows, labels = _round(lesson, inputs, 0)
    shares = labels.mean(0) / labels.mean(0).sum()
    for epoch in range(recipe.epochs):
        if epoch and rounds > 1:
            rows, labels = _round(lesson, inputs, epoch % rounds)
        order = torch.randperm(len(rows)).to(lesson.device)
        batches = ((rows[chosen], labels[chosen]) for chosen in _cut(order, recipe.batch_size))
        losses = descend(
            model, optimizer, batches, loss_of, schedule=schedule, precision=lesson.precision
        )
        mean = float(torch.stack(list(losses)).mean())
        if not math.isfinite(mean):
            raise CellFailed(f"training diverged: the loss was {mean} in epoch {epoch + 1}")
        progress(epoch + 1, recipe.epochs, f"loss {mean:.3f}")
    model.eval()
    return shares


def _cut(order: Tensor, size: int) -> Iterator[Tensor]:
    return (order[span] for span in spans(len(order), size))


def _round(lesson: Lesson, inputs: Inputs, turn: int) -> tuple[Tensor, Tensor]:
    pieces = [(inputs.encodings(x), y) for x, y in lesson.release.pieces(turn)]
    return torch.cat([x for x, _ in pieces]), torch.cat([y for _, y in pieces])


@torch.no_grad()
def answers(model: nn.Sequential, inputs: Tensor) -> Tensor:
    """[n, classes] of inputs [n, *shape]."""
    return torch.cat([model(part) for part in inputs.split(BATCH)])


def has_batchnorm(model: nn.Sequential) -> bool:
    """Whether any of its layers looks at more than one input."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def recompute(model: nn.Sequential, images: Tensor) -> None:
    """Replace the running statistics of BatchNorm by averages over inputs [n, *shape]."""
    if len(images) > 1 and has_batchnorm(model):
        update_bn((images[span] for span in spans(len(images), BATCH)), model)
        model.eval()


def without_batchnorm(model: nn.Sequential) -> nn.Sequential:
    """The same network with a GroupNorm in place of each BatchNorm."""
    for name, module in list(model.named_modules()):
        if isinstance(module, _BatchNorm):
            parent, _, child = name.rpartition(".")
            channels = module.num_features
            norm = nn.GroupNorm(groups_of(channels), channels).to(module.running_mean.device)
            setattr(model.get_submodule(parent), child, norm)
    return model

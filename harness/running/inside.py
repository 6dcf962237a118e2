"""The owner's own training, and what leaves it: features, gradients or updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from harness.api import Progress, Recipe, Release, ReleaseKind, Samples, Stream, UsageError
from harness.api.precision import Precision
from harness.rng import seeded
from harness.running.encoding import Held
from harness.running.release import INPUT_SHAPE, MEASURE, OWNER_MODEL, SECONDS, Stack
from harness.running.training import (
    EpochClock,
    correct,
    fit,
    gradient_streams,
    objective,
    outputs,
    protect,
    state,
)
from harness.sandbox.rebuilding import cut_at

if TYPE_CHECKING:
    from harness.running.release import ReleaseProtocol

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Inside:
    """The owner's own training: a fresh model, the material, and the stack that guards it."""

    model: nn.Sequential
    recipe: Recipe
    stack: Stack
    rounds: Held
    owner: Stream
    device: torch.device
    precision: Precision
    progress: Progress

    def train(self, epochs: int | None = None) -> None:
        """Train `model` in place: to the end, or as far as it is after so many epochs."""
        recipe = self.recipe.model_copy(update={"epochs": max(self.recipe.epochs, epochs or 0)})
        fit(
            self.model,
            self.rounds.images,
            self.rounds.labels,
            recipe,
            self.owner.stream(what="training"),
            device=self.device,
            stack=self.stack,
            stop_after=epochs,
            precision=self.precision,
            progress=self.progress,
        )

    def facts(self, private: Samples) -> dict[str, float | int | str]:
        """The accuracy on the private images, what defenses measured, what the victim takes."""
        shape = self.rounds.images.shape[2:]
        measured = {f"{MEASURE}{name}": value for name, value in self.stack.measures().items()}
        facts: dict[str, float | int | str] = {INPUT_SHAPE: "x".join(map(str, shape))}
        facts |= measured
        if private.images.shape[1:] != shape:  # encodings of another resolution
            return facts
        logits = outputs(self.model, private.images, self.device)
        return {"train_accuracy": correct(logits, private.labels) / len(private), **facts}


def features_of(inside: Inside, private: Samples, asked: Samples) -> Release:
    """h(x) of the images `asked` in their order, and h; the head does not leave."""
    clock = EpochClock(inside.progress)
    replace(inside, progress=clock).train()
    h, _ = cut_at(inside.model, inside.recipe.cut)
    features = {"features": outputs(h, asked.images, inside.device)}
    return Release(
        ReleaseKind.FEATURES,
        features | prefixed("feature_encoder.", state(h)),
        prefixed(OWNER_MODEL, state(inside.model)),
        inside.rounds.resolved,
        inside.facts(private) | {SECONDS: clock.seconds},
    )


def gradients_of(inside: Inside, private: Samples, protocol: ReleaseProtocol) -> Release:
    """Protected gradients of the first batches, and the model they were taken at."""
    return _of_batches(ReleaseKind.GRADIENTS, _batch_gradients, inside, private, protocol)


def updates_of(inside: Inside, private: Samples, protocol: ReleaseProtocol) -> Release:
    """By how much each party's local training moved the weights, and the model it began with.

    Of parameters alone: running statistics of BatchNorm stay with the party.
    """
    return _of_batches(ReleaseKind.UPDATES, _local_updates, inside, private, protocol)


def _of_batches(
    kind: ReleaseKind,
    made: Callable[[Inside, Tensors, ReleaseProtocol], tuple[Tensors, Tensors]],
    inside: Inside,
    private: Samples,
    protocol: ReleaseProtocol,
) -> Release:
    """What is `made` of the first batches at a young model, which leaves as well."""
    rows = _first_rows(inside.rounds, protocol)
    inside.train(protocol.victim_epochs)
    weights = prefixed("model.", state(inside.model))
    facts = inside.facts(private)
    leaving, statistics = made(inside, rows, protocol)
    secrets = {
        "batch_labels": rows["labels"],
        "batch_inputs": rows["images"],
        **_mixture(rows),
        **statistics,
    }
    return Release(
        kind,
        prefixed(f"{kind}.", leaving) | weights,
        secrets,
        inside.rounds.resolved,
        facts
        | {"victim_epochs": protocol.victim_epochs, "bn_mode": protocol.bn_mode}
        | _distinct_labels(rows["labels"]),
    )


def _distinct_labels(labels: Tensor) -> dict[str, float]:
    """The fact of how many leading labels a batch of several holds, of as many as it could.

    `labels` [batches, b, classes]; the mean over batches. Where it is 1, telling the labels of a
    batch apart tells its images apart.
    """
    if labels.shape[1] == 1:
        return {}
    distinct = [len(set(batch)) for batch in labels.argmax(2).tolist()]
    return {f"{MEASURE}distinct_labels": sum(distinct) / len(distinct) / min(labels.shape[1:])}


def _mixture(rows: Tensors) -> Tensors:
    return {name: rows[name] for name in ("weights", "sources")}


def _first_rows(rounds: Held, protocol: ReleaseProtocol) -> Tensors:
    """Batches [rounds·batches,b,...] of the rows that the first images are primary in.

    As they come. Rows are in a secret order, and the images that are judged are the first: the
    first rows would be gradients of others.
    """
    turns, available = rounds.images.shape[:2]
    size = protocol.together
    wanted = protocol.batches * size
    if wanted > available:
        raise UsageError(
            f"{protocol.batches} batches of {size} need {wanted} images, "
            f"and there are {available}: ask for smaller batches, or more private images"
        )
    named = {"images": rounds.images, "labels": rounds.labels, **rounds.secrets}
    primary = rounds.secrets["sources"][..., 0]
    chosen = (primary >= wanted).int().argsort(dim=1, stable=True)[:, :wanted]
    turn = torch.arange(turns).unsqueeze(1)
    shape = (turns * protocol.batches, size)
    return {name: rows[turn, chosen].view(*shape, *rows.shape[2:]) for name, rows in named.items()}


def _batch_gradients(
    inside: Inside, rows: Tensors, protocol: ReleaseProtocol
) -> tuple[Tensors, Tensors]:
    """By parameter: the protected gradient of each batch's loss; and what each BatchNorm saw."""
    gradients = _room(inside.model, len(rows["images"]))
    with batch_statistics(inside.model) as seen, _protected(inside, protocol) as protected:
        for i, batch in enumerate(zip(rows["images"], rows["labels"], strict=True)):
            for name, gradient in protected(*batch, batch=i).items():
                gradients[name][i] = gradient
    return gradients, {name: torch.stack(values) for name, values in seen.items()}


def _local_updates(
    inside: Inside, rows: Tensors, protocol: ReleaseProtocol
) -> tuple[Tensors, Tensors]:
    """By parameter: each party's weights after its steps of plain SGD minus those it was sent.

    FedAvg's local update (McMahan et al. 2017, arXiv:1602.05629, algorithm 1), whose every step is
    by a protected gradient. In the weights' own precision, so that the difference has the rounding
    that it has where a party sends its weights.
    """
    model = inside.model
    sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    updates = _room(model, len(rows["images"]))
    with _protected(inside, protocol) as protected:
        for i, (images, labels) in enumerate(zip(rows["images"], rows["labels"], strict=True)):
            model.load_state_dict(sent)
            for step, chosen in enumerate(_local_batches(inside.owner.stream(party=i), protocol)):
                gradients = protected(images[chosen], labels[chosen], batch=i, step=step)
                _descend(model, gradients, protocol.local_lr)
            for name, parameter in model.named_parameters():
                updates[name][i] = parameter.detach() - sent[name]
    return updates, {}


def _descend(model: nn.Module, gradients: Mapping[str, Tensor], lr: float) -> None:
    """One step of plain SGD, in place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.sub_(gradients[name], alpha=lr)


def _local_batches(stream: Stream, protocol: ReleaseProtocol) -> Iterator[Tensor]:
    """Which of its images a party takes each step on: all of them in turn, reshuffled by epoch."""
    orders = (
        stream.stream(what="local order", epoch=epoch).permutation(protocol.together)
        for epoch in count()
    )
    batches = chain.from_iterable(torch.split(order, protocol.batch_size) for order in orders)
    return islice(batches, protocol.local_steps)


def _room(model: nn.Module, batches: int) -> Tensors:
    """[batches, *shape] for each parameter."""
    return {name: torch.empty((batches, *p.shape)) for name, p in model.named_parameters()}


@contextmanager
def _protected(inside: Inside, protocol: ReleaseProtocol) -> Iterator[Callable[..., Tensors]]:
    """What makes the protected gradient of one batch of images and labels, at the model as it is.

    The loss is that of training: soft-label cross entropy with the stack's penalties. Whatever
    further is named says which noise it gets.
    """
    model, stack, device = inside.model, inside.stack, inside.device
    model.train(protocol.bn_mode == "train")
    names, parameters = zip(*model.named_parameters(), strict=True)
    with (
        seeded(inside.owner.stream(what="gradients"), device),
        objective(model, model, inside.recipe.cut, stack) as loss_of,
    ):

        def gradient_of(images: Tensor, labels: Tensor) -> Tensors:
            taken = torch.autograd.grad(loss_of(images, labels), parameters)
            return dict(zip(names, taken, strict=True))

        def protected(images: Tensor, labels: Tensor, **axes: int) -> Tensors:
            noise = inside.owner.stream(what="noise", **axes)
            with _more_than_one_value():
                batch = images.to(device), labels.to(device)
                taken = _taken(gradient_of, batch, stack, noise)
            return dict(protect(taken, stack, gradient_streams(stack, inside.owner, **axes)))

        yield protected


@contextmanager
def _more_than_one_value() -> Iterator[None]:
    """Turn torch's error about BatchNorm on one value into advice."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UsageError(
            "the victim's BatchNorm has no statistics of a batch of one image; ask for "
            "--batch-size 2 or --bn-mode eval"
        ) from None


def _taken(
    gradient_of: Callable[[Tensor, Tensor], Tensors],
    batch: tuple[Tensor, Tensor],
    stack: Stack,
    rng: Stream,
) -> Mapping[str, Tensor]:
    """One batch's gradient, or what a training defense makes of its images' own gradients."""
    guard = stack.gradient_maker
    if guard is None:
        return gradient_of(*batch)
    each = [gradient_of(image[None], label[None]) for image, label in zip(*batch, strict=True)]
    return guard.gradient({name: torch.stack([own[name] for own in each]) for name in each[0]}, rng)


@contextmanager
def batch_statistics(model: nn.Module) -> Iterator[Mapping[str, list[Tensor]]]:
    """Collect, while open, the mean and biased variance of what enters each BatchNorm.

    Named `bn_statistics.<layer>.mean` and `.var`, one [channels] for each forward pass.
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm)}
    seen: dict[str, list[Tensor]] = {}

    def watch(layer: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        mean_of, var_of = f"bn_statistics.{layer}.mean", f"bn_statistics.{layer}.var"
        seen[mean_of], seen[var_of] = [], []

        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].detach()
            dims = [d for d in range(x.ndim) if d != 1]
            var, mean = torch.var_mean(x, dim=dims, correction=0)
            seen[mean_of].append(mean.cpu())
            seen[var_of].append(var.cpu())

        return hook

    handles = [m.register_forward_pre_hook(watch(name)) for name, m in layers.items()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """The same tensors under longer names."""
    return {f"{prefix}{name}": value for name, value in tensors.items()}

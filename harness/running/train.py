"""Train the victim under a stack, and keep or bring back its weights."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from harness.api import (
    CellFailed,
    Progress,
    Recipe,
    Release,
    ReleaseKind,
    Stream,
    Victim,
)
from harness.api.plugins import silent
from harness.running.stack import Stack
from harness.running.training import fit, fresh
from harness.sandbox.rebuilding import restore

OWNER_MODEL = "owner_model."
"""Prefix, among a release's secrets, of the model that the owner trained inside."""

MEASURE = "measure."
"""Prefix, among a release's facts, of what its training defenses measured."""

SECONDS = "training_seconds"
"""The fact of a release, or of a training, that says how long the victim was trained."""

INPUT_SHAPE = "input_shape"
"""The fact of a release that says what its victim takes, as in `1x28x28`."""


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

        The first pays for libraries that wake up.
        """
        epochs = [after - before for before, after in pairwise(self._ticks)]
        return median(epochs[1:]) * len(epochs) if len(epochs) > 1 else 0.0


def train(
    release: Release,
    victim: Victim[Any],
    classes: int,
    stream: Stream,
    device: torch.device,
    *,
    stack: Stack | None = None,
    progress: Progress = silent,
) -> nn.Sequential:
    """The victim trained under this release's stack, on `device`, in evaluation mode.

    Encodings: trained here, from the released bytes alone, with the stack's training and
    gradient defenses; epoch e reads round e mod T. Features: the owner trained it while making
    the release, and it comes back from the secrets. Gradients are of a model that was stopped
    early: for the accuracy of their stack, train on its encodings.
    """
    if release.kind is ReleaseKind.FEATURES:
        owned = under(OWNER_MODEL, release.secrets)
        return restore(victim, input_shape(release), classes, owned).to(device)
    if release.kind is ReleaseKind.GRADIENTS:
        raise CellFailed("gradients hold no trained victim; train on the stack's encodings")
    images, labels = release.tensors["encodings"], release.tensors["labels"]
    shape = tuple(images.shape[2:])
    model = fresh(victim, shape, classes, stream, device=device)
    recipe: Recipe = victim.config
    return fit(model, images, labels, recipe, stream, device=device, stack=stack, progress=progress)


def input_shape(release: Release) -> tuple[int, ...]:
    """The shape of one input of the victim that this release was made with."""
    if release.kind is ReleaseKind.ENCODINGS:
        return tuple(release.tensors["encodings"].shape[2:])
    return tuple(int(side) for side in str(release.facts[INPUT_SHAPE]).split("x"))


def state(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name: copies on the CPU, contiguous."""
    return {
        name: value.detach().to("cpu", copy=True).contiguous()
        for name, value in model.state_dict().items()
    }


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }

"""Mixtures from masked mixtures: the network that undoes a mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from harness_plugins.networks import training
from harness_plugins.signs import DEMASKING
from harness_plugins.signs.adversary import Adversary
from harness_plugins.signs.exercise import encode, hides_signs
from harness_plugins.signs.network import SignNetwork, build
from harness_plugins.signs.school import Lesson, School, cross_entropy, parted

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Progress, Samples, Stream, View
    from harness_plugins.signs.school import Objective

Method = Literal["regression", "gan"]

_TOLD = 0.5  # share of the lessons in which weights are told
_SURE = 8.0  # log-odds of signs that no mask hid


def learn(
    view: View,
    _budget: Budget,
    progress: Progress,
    *,
    method: Method = "regression",
    base: int = 16,
    epochs: int = 2,
    images: int = 20_000,
    lr: float = 3e-3,
) -> Mapping[str, Tensor]:
    """The preparation `demasking`: from public images under the owner's law.

    A law that hides no signs has nothing to teach: `hidden` says so, and the network stays as
    it is.
    """
    held_out, samples = parted(view.public, images)
    rng = view.rng.stream(use="demask")
    first = encode(view, held_out, rng.stream(use="look"))
    hidden = hides_signs(first)
    network = build(view.shape[0], first.weights.shape[1] + 1, base, view.device)
    if not hidden:
        return {**training.snapshot(network), "hidden": torch.zeros(1)}
    school = School(
        _lesson_of(view), _objective(view, method, base, lr), epochs, lr, view.precision
    )
    kept = school.teach(network, samples, held_out, rng, progress)
    return {**kept, "hidden": torch.ones(1)}


def _objective(view: View, method: Method, base: int, lr: float) -> Objective:
    if method == "gan":
        return Adversary(view.shape[0], base, lr, view.device).objective
    return cross_entropy


@dataclass(frozen=True)
class Demasker:
    """Mixtures from encodings; where no signs are `hidden`, an encoding is its own mixture."""

    network: SignNetwork
    hidden: bool

    @classmethod
    def of(cls, view: View) -> Demasker:
        """What the preparation made."""
        return cls.restore(view.made(DEMASKING.name), view.shape[0])

    @classmethod
    def restore(cls, kept: Mapping[str, Tensor], channels: int) -> Demasker:
        """From what `learn` returned."""
        return cls(SignNetwork.of(dict(kept), channels), bool(kept["hidden"].item()))

    def odds(self, encodings: Tensor, weights: Tensor | None = None) -> Tensor:
        """Half the log-odds [n, c, h, w] of the mixture's signs; `weights` [n, k] if known."""
        if not self.hidden:
            return _SURE * encodings.sign()
        return self.network.odds(encodings.abs(), self._told(encodings, weights))

    def apply(self, encodings: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Expected mixtures [n, c, h, w], and the variance of each value about them."""
        if not self.hidden:
            return encodings, torch.zeros_like(encodings)
        expected = self.odds(encodings, weights).tanh()
        seen = encodings.abs()
        return seen * expected, seen.square() * (1 - expected.square())

    def _told(self, encodings: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            return encodings.new_zeros(len(encodings), self.network.body.embed.in_features)
        return torch.cat([weights, torch.ones_like(weights[:, :1])], 1)


def _lesson_of(view: View) -> MakeLesson:
    """Lessons under the owner's law; weights are told in half, that both cases are learned."""

    def lesson(samples: Samples, rng: Stream) -> Lesson:
        work = encode(view, samples, rng.stream(use="encode"))
        told = torch.cat([work.weights, torch.ones_like(work.weights[:, :1])], 1)
        silent = rng.uniform(len(told), 1).to(told.device) >= _TOLD
        return Lesson(work.encodings.abs(), told.masked_fill(silent, 0), work.mixtures)

    return lesson


if TYPE_CHECKING:
    from harness_plugins.signs.school import MakeLesson

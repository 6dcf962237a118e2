"""The attack on public images, by which it decides how far to go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from harness.api import Channel
from harness_plugins.attacks.prior.denoiser import parted
from harness_plugins.mixtures.released import Released

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Scale, View

_FEWEST = 20
"""Images of an exercise below which its word counts for nothing."""
_LEVELS = 4
_SHARES = tuple(step / 10 for step in range(11))
_SURE = 2.0
"""Standard errors that a gain must have over the linear answer's score."""


def exercised(released: Released) -> tuple[Released, Tensor] | None:
    """A release of held-out public images [n, *shape] by the same law, and those images.

    As many of them as there are private ones and in as many rounds, as far as there are; None
    where there are too few.
    """
    view = released.view
    samples = parted(view.public)[0][: view.n_private]
    if len(samples) < _FEWEST:
        return None
    streams = [view.rng.stream(use="exam", turn=turn) for turn in range(len(view.encodings))]
    rounds = [view.encoder.encode(samples, view.public, rng) for rng in streams]
    channels = {**_channels(view, rounds), Channel.N_PRIVATE: len(samples)}
    copy = replace(view, channels={**view.channels, **channels})
    return replace(released, view=copy), samples.images


def _channels(view: View, rounds: list[Encoded]) -> dict[Channel, Tensor]:
    classes = view.labels.shape[2] if view.has(Channel.LABELS) else view.classes
    labels = [pad(each.labels, (0, classes - each.labels.shape[1])) for each in rounds]
    stacks = {
        Channel.ENCODINGS: [each.images for each in rounds],
        Channel.LABELS: labels,
        Channel.WEIGHTS: [each.secrets.weights for each in rounds],
        Channel.SOURCES: [each.secrets.sources for each in rounds],
    }
    return {name: torch.stack(stack).to(view.device) for name, stack in stacks.items()}


@dataclass(frozen=True)
class Choice:
    """Of which turn the images are taken, and the `shares` [levels] of them in the answer.

    `edges` [levels-1] part the images by the precision of what their rows say.
    """

    turn: int
    edges: Tensor
    shares: Tensor

    def blend(self, linear: Tensor, found: Tensor, precision: Tensor) -> Tensor:
        """[n, *shape] of the linear answer and what was found at that turn."""
        share = self.shares[torch.bucketize(precision, self.edges)]
        return torch.lerp(linear, found, share.view(-1, *[1] * (linear.dim() - 1)))


def linear_only() -> Choice:
    """The linear answer alone."""
    return Choice(0, torch.zeros(0), torch.zeros(1))


def decibels(images: Tensor, truth: Tensor) -> Tensor:
    """[n] SNR of each image."""
    error = (images - truth).flatten(1).square().sum(1).clamp(min=1e-12)
    signal = truth.flatten(1).square().sum(1).clamp(min=1e-12)
    return (10 * (signal / error).log10()).clamp(-120, 120)


@dataclass(frozen=True)
class Exam:
    """`linear` [n, *shape] of images `truth`, and the `scale` that clamps what is scored.

    `precision` [n] of what the rows said of each, before any turn.
    """

    scale: Scale
    truth: Tensor
    linear: Tensor
    precision: Tensor

    def score(self, images: Tensor) -> Tensor:
        """[n] SNR."""
        return decibels(self.scale.clamp(images), self.truth)

    def choose(self, turn: int, found: Tensor) -> tuple[Choice, float]:
        """The best shares of what was `found` [n, *shape], and the gain in dB over the linear.

        A level where no share is surely better keeps the linear answer.
        """
        start = self.score(self.linear)
        gains = torch.stack(
            [self.score(torch.lerp(self.linear, found, share)) - start for share in _SHARES]
        )
        levels = max(1, min(_LEVELS, len(self.truth) // _FEWEST))
        at = torch.linspace(0, 1, levels + 1, device=start.device)[1:-1]
        edges = self.precision.quantile(at)
        level = torch.bucketize(self.precision, edges)
        picked = [_best(gains[:, level == number]) for number in range(levels)]
        shares = start.new_tensor([_SHARES[index] for index in picked])
        gain = sum(float(gains[i, level == number].sum()) for number, i in enumerate(picked))
        return Choice(turn, edges, shares), gain / len(start)


def _best(gains: Tensor) -> int:
    """Of gains [shares, n]: the share of the largest mean, or 0 where that is not sure."""
    if gains.shape[1] < 2:
        return 0
    index = int(gains.mean(1).argmax())
    error = gains[index].std() / gains.shape[1] ** 0.5
    return index if float(gains[index].mean()) > _SURE * float(error) else 0

"""Training the networks on public images that the attacker encodes itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

from harness.api.training import descend
from harness_plugins.attacks.similarity.network import Towers
from harness_plugins.candidates import at_shape
from harness_plugins.networks.holdout import held_out

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, Samples, Stream, View
    from harness.api.precision import Precision
    from harness_plugins.attacks.similarity import SimilarityConfig

# Images of one exercise: enough to meet as in a release, few enough to be encoded in a moment.
_GROUP = 2000


@dataclass(frozen=True)
class Lesson:
    """Encodings [b, *shape], the first image of each, and the share [b, b] of each in each."""

    encodings: Tensor
    images: Tensor
    shares: Tensor


def learn(view: View, config: SimilarityConfig, progress: Progress) -> dict[str, Tensor]:
    """Trained networks, and the AUC of held-out images as `exam`."""
    held = held_out(len(view.public))
    network = Towers(view.shape).to(view.device)
    samples = view.public[held:][: config.images]
    lessons = _lessons(view, samples, config.batch)
    _train(network, lessons, config, view.precision, progress)
    exam = _exam(network, view, view.public[:held])
    return {**network.state_dict(), "exam": exam}


def _train(
    network: Towers,
    lessons: Iterator[Lesson],
    config: SimilarityConfig,
    precision: Precision,
    progress: Progress,
) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=config.lr)
    losses = descend(
        network,
        optimizer,
        islice(lessons, config.steps),
        partial(contrast, network),
        schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps),
        precision=precision,
    )
    for step, loss in enumerate(losses, 1):
        if step % 10 == 0:
            progress(step, config.steps, f"contrast {float(loss):.3f}")


def contrast(network: Towers, lesson: Lesson) -> Tensor:
    """InfoNCE in both directions, [] nats; chance is the logarithm of the batch."""
    logits = network.logits(lesson.encodings, lesson.images)
    shares = lesson.shares
    along = cross_entropy(logits, shares / shares.sum(1, keepdim=True))
    across = cross_entropy(logits.T, (shares / shares.sum(0, keepdim=True)).T)
    return (along + across) / 2


def _lessons(view: View, samples: Samples, batch: int) -> Iterator[Lesson]:
    """Without end: fresh groups of images, encoded together, and cut into batches."""
    turn = 0
    while True:
        rng = view.rng.stream(use="lessons", turn=turn)
        chosen = rng.permutation(len(samples))[: max(_GROUP, batch)].to(samples.images.device)
        yield from _group(view, samples[chosen], batch, rng)
        turn += 1


def _group(view: View, samples: Samples, batch: int, rng: Stream) -> Iterator[Lesson]:
    encoded = view.encoder.encode(samples, view.public, rng)
    weights = encoded.secrets.weights.to(view.device)
    sources = encoded.secrets.sources.to(view.device)
    encodings = at_shape(encoded.images.to(view.device), view.shape)
    batch = min(batch, len(samples))
    for rows in torch.arange(len(samples), device=view.device).split(batch):
        if len(rows) == batch:
            own = sources[rows, 0]
            shares = _shares(weights[rows], sources[rows], own)
            yield Lesson(encodings[rows], samples.images[own], shares)


def _shares(weights: Tensor, sources: Tensor, images: Tensor) -> Tensor:
    """[b, m] weight of each of `images` [m] in each row."""
    same = sources.unsqueeze(2) == images.view(1, 1, -1)
    return (same * weights.unsqueeze(2)).sum(1)


def _exam(network: Towers, view: View, samples: Samples) -> Tensor:
    """[] how often the image in an encoding is put above one that is not; held-out images."""
    encoded = view.encoder.encode(samples, view.public, view.rng.stream(use="exam"))
    rows = at_shape(encoded.images.to(view.device), view.shape)
    scores = network.scores(rows, samples.images)
    sources = encoded.secrets.sources.to(view.device)
    images = torch.arange(len(samples), device=view.device)
    inside = (sources.unsqueeze(2) == images.view(1, 1, -1)).any(1)
    own = scores.gather(1, sources[:, :1])
    below = ((scores < own) & ~inside).sum(1) / (~inside).sum(1).clamp(min=1)
    return below.mean()

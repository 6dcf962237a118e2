"""A small convolutional network, trained on the public images of a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.api import Metric
from harness.api.training import descend

if TYPE_CHECKING:
    from harness.api import Samples, Scene

STEPS, BATCH, RATE = 300, 64, 6e-3
SHARE, MOST = 10, 1000
"""One public image in so many is kept to see how well the network reads, and no more than these."""
SEED = 0
BEYOND_CHANCE = 3.0
"""Deviations by which its share of right answers must lie above a guess's."""
CHUNK = 512


@dataclass(frozen=True)
class Reader:
    """A trained network, and how it does on `asked` public images that it was not trained on.

    `guess` is the share of their most frequent class.
    """

    network: nn.Module
    right: int
    asked: int
    guess: float

    @property
    def fault(self) -> str | None:
        """Why its answers mean nothing, or None."""
        spread = (self.guess * (1 - self.guess) / max(self.asked, 1)) ** 0.5
        if self.asked and self.right / self.asked > self.guess + BEYOND_CHANCE * spread:
            return None
        return (
            f"a network trained on the public images reads {self.right} of {self.asked} others of "
            "them, no more than a guess does"
        )


class Recognition(Metric):
    """1 where the reader takes a reconstruction for its target's class, 0 elsewhere.

    Trained when it is first asked, once in each domain, the same on every run.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._readers: dict[Callable[[Tensor], Tensor], Reader] = {}

    @property
    def reader(self) -> Reader:
        """The network of this scene's domain."""
        if self.scene.domain not in self._readers:
            self._readers[self.scene.domain] = learn(self.scene)
        return self._readers[self.scene.domain]

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """Where the public images teach nothing: they are too few, say, or their labels random."""
        return self.reader.fault

    def chance(self, count: int) -> float:
        """What one answer to all of the first `count` targets reaches at most."""
        return _largest_share(self.scene.labels[:count])

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] of 0 and 1; the truth are the first n targets."""
        answers = self._answers(images)
        return (answers == self.scene.labels[: len(truth)]).double()

    def _answers(self, images: Tensor) -> Tensor:
        network = self.reader.network
        with torch.no_grad():
            logits = [
                network(self.scene.scale.standardise(part.to(self.scene.device)))
                for part in images.float().split(CHUNK)
            ]
        return torch.cat(logits).argmax(1).cpu()


def learn(scene: Scene) -> Reader:
    """Train on the scene's public images in its domain; torch's own generators stay untouched."""
    public = scene.public
    kept = min(MOST, len(public) // SHARE)
    devices = [scene.device] if scene.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(SEED)
        order = torch.randperm(len(public))
        network = build(public.images.shape[1:], scene.classes).to(scene.device)
        fit(network, public[order[kept:]], scene)
    return _examined(network, public[order[:kept]], scene)


def build(shape: Sequence[int], classes: int) -> nn.Sequential:
    """Images of a shape [c, h, w] to logits: two convolutions, a pooling, a linear layer."""
    body = nn.Sequential(
        nn.Conv2d(shape[0], 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, ceil_mode=True),
        nn.Flatten(),
    )
    width = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(body, nn.Linear(width, classes))


def fit(network: nn.Module, samples: Samples, scene: Scene) -> None:
    """Adam under one cycle of its rate, on random batches; nothing happens without images."""
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    cycle = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=STEPS)
    steps = range(STEPS if len(samples) else 0)
    batches = (samples[torch.randint(len(samples), (BATCH,))] for _ in steps)

    def loss_of(batch: Samples) -> Tensor:
        return cross_entropy(network(_material(batch, scene)), batch.labels.to(scene.device))

    for _ in descend(network, adam, batches, loss_of, schedule=cycle):
        pass
    network.requires_grad_(False)


def _material(samples: Samples, scene: Scene) -> Tensor:
    """Public images as the network gets to see them."""
    return scene.scale.standardise(scene.domain(samples.unit().images.to(scene.device)))


def _examined(network: nn.Module, samples: Samples, scene: Scene) -> Reader:
    with torch.no_grad():
        answers = [
            network(_material(samples[slice(start, start + CHUNK)], scene)).argmax(1).cpu()
            for start in range(0, len(samples), CHUNK)
        ]
    right = sum(
        int((each == samples.labels[i * CHUNK : (i + 1) * CHUNK]).sum())
        for i, each in enumerate(answers)
    )
    return Reader(network, right, len(samples), _largest_share(samples.labels))


def _largest_share(labels: Tensor) -> float:
    """How many of the labels are the most frequent one; 1 where there are none."""
    if not len(labels):
        return 1.0
    return float(labels.bincount().max()) / len(labels)

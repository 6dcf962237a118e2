"""A likeness that learns what tells images of one class apart, and nothing else.

Encodings are compared only where their leading labels are equal: what tells classes apart is
known from the labels, and an embedding of all images spends itself on it. So every lesson is of
one class. An encoding is drawn to the image that leads in it, as it was before it was moved and
mixed, and to another encoding of it: the image is the less disturbed teacher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from harness.api.training import descend
from harness_plugins.attacks.luo import CLASSWISE
from harness_plugins.attacks.luo.lessons import Law, Lesson, lesson_of, lessons
from harness_plugins.attacks.luo.ranks import pair_auc
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.training import restore, schedule, snapshot

if TYPE_CHECKING:
    from harness.api import Budget, Progress, Stream, View
    from harness_plugins.attacks.luo.members import Members

_WIDTHS = ((32, 5, 2), (64, 3, 2), (128, 3, 1), (128, 3, 2))  # outputs, side, stride
_PLACE = 256
_ROUNDS = 4
_REPEATS = 2  # lessons of a class from one group of encodings
_MOST = 128  # images in a lesson
_BLOCK = 512


class Tower(nn.Module):
    """Samples of `shape` (c, h, w) to unit vectors of 256 values."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, height, width = shape
        for outputs, side, stride in _WIDTHS:
            layers += [
                nn.Conv2d(channels, outputs, side, stride, side // 2, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
            channels, height, width = outputs, -(-height // stride), -(-width // stride)
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.last = nn.Linear(channels * height * width, _PLACE)

    def forward(self, samples: Tensor) -> Tensor:
        """[n, 256] of samples [n, *shape]."""
        return normalize(self.last(self.layers(samples)))


@dataclass(frozen=True)
class Classwise:
    """The trained tower of encodings, and the `centre` and `spread` of what it is shown."""

    network: Tower
    centre: Tensor
    spread: Tensor
    exam: float

    @classmethod
    def of(cls, view: View) -> Classwise:
        """What the preparation made."""
        kept = view.made(CLASSWISE.name)
        network = Tower(view.shape).to(view.device)
        restore(network, kept)
        return cls(network, kept["centre"], kept["spread"], float(kept["exam"]))

    @torch.no_grad()
    def places(self, members: Members) -> Tensor:
        """[m, 256], block by block."""
        rows = torch.arange(len(members), device=members.share.device)
        blocks = ((members[part].scaled - self.centre) / self.spread for part in rows.split(_BLOCK))
        return torch.cat([self.network(block) for block in blocks])


def learn(
    view: View,
    _budget: Budget,
    progress: Progress,
    *,
    compare_steps: int = 300,
    compare_rate: float = 2e-3,
    pair_images: int = 50_000,
) -> Mapping[str, Tensor]:
    """The preparation `classwise`."""
    rng = view.rng.stream(use="classwise")
    samples = view.public[:pair_images]
    held = held_out(len(samples))
    law = Law.of(view, bare=False)
    exam = lesson_of(view, law, samples[:held], _ROUNDS, rng.stream(use="exam"))
    scaled = exam.members.scaled
    school = School(view, scaled.mean(0), scaled.std().clamp(min=1e-12))
    source = lessons(view, law, samples[held:], _ROUNDS, rng.stream(use="lessons"))
    school.teach(by_class(source, rng.stream(use="draw")), compare_steps, compare_rate, progress)
    kept = {**snapshot(school.encodings), "centre": school.centre, "spread": school.spread}
    with torch.no_grad():
        places = torch.cat([school.encodings(x) for x in school.shown(scaled).split(_BLOCK)])
    return {**kept, "exam": pair_auc(places, exam.owner, exam.members.leading)}


def by_class(source: Iterator[Lesson], rng: Stream) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Two encodings [b, *shape] of each of some images of one class, and the images."""
    turn = 0
    for lesson in source:
        kinds = lesson.labels[lesson.usable]
        present = kinds.unique()
        order = present[rng.stream(order=turn).permutation(len(present)).to(present.device)]
        for kind in order.repeat(_REPEATS):
            turn += 1
            images = lesson.usable[kinds == kind][:_MOST]
            if len(images) > 1:
                rows = lesson.draw(images, 2, rng.stream(turn=turn))
                one, other = (lesson.members[rows[:, side]].scaled for side in range(2))
                yield one, other, lesson.images[images]


class School:
    """Both towers and how sharply they tell; the tower of images is only learned from."""

    def __init__(self, view: View, centre: Tensor, spread: Tensor) -> None:
        self.centre, self.spread, self.precision = centre, spread, view.precision
        self.encodings = Tower(view.shape).to(view.device)
        self.images = Tower(view.shape).to(view.device)
        self.sharpness = nn.Parameter(torch.tensor(2.5, device=view.device))

    def shown(self, scaled: Tensor) -> Tensor:
        """As towers want it."""
        return (scaled - self.centre) / self.spread

    def teach(
        self,
        batches: Iterator[tuple[Tensor, Tensor, Tensor]],
        steps: int,
        rate: float,
        progress: Progress,
    ) -> None:
        """Leaves the tower of encodings ready for use."""
        towers = nn.ModuleList([self.encodings, self.images])
        parameters = [*towers.parameters(), self.sharpness]
        optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-2)
        losses = descend(
            towers,
            optimizer,
            islice(batches, steps),
            lambda batch: self.contrast(*batch),
            schedule=schedule(optimizer, steps),
            precision=self.precision,
        )
        for step, loss in enumerate(losses, 1):
            if step % 10 == 0 or step == steps:
                progress(step, steps, f"images of one class: {float(loss):.2f} nats")
        self.encodings.eval()

    def contrast(self, one: Tensor, other: Tensor, images: Tensor) -> Tensor:
        """[] mean InfoNCE of the three pairs that two encodings and their image make."""
        first, second = self.encodings(self.shown(torch.cat([one, other]))).chunk(2)
        image = self.images(images)
        pairs = ((first, image), (second, image), (first, second))
        return torch.stack([self._told(a, b) for a, b in pairs]).mean()

    def _told(self, some: Tensor, others: Tensor) -> Tensor:
        logits = self.sharpness.exp().clamp(max=100) * (some @ others.T)
        right = torch.arange(len(some), device=some.device)
        return (cross_entropy(logits, right) + cross_entropy(logits.T, right)) / 2

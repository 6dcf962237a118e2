"""The comparative network: two encodings, at two resolutions, and how alike they are.

The score of a pair before the sigmoid is sum_c w_c <f_c(x), f_c(y)> + b, f_c being the maps of
channel c at unit length (their inner product is the cosine). That is bilinear: with w >= 0 each
encoding has a place, its maps times sqrt(w_c), and all pairs are scored by one evaluation of the
network for each encoding and matrix products in blocks, where a network of pairs would take one
evaluation for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu, softplus

from harness.api.training import descend
from harness_plugins.attacks.luo import COMPARATIVE
from harness_plugins.attacks.luo.lessons import Law, Lesson, lesson_of, lessons
from harness_plugins.attacks.luo.ranks import pair_auc
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.training import restore, schedule, snapshot

if TYPE_CHECKING:
    from harness.api import Budget, Progress, Stream, View
    from harness_plugins.attacks.luo.members import Members

_BLOCKS = 3
_CLASSES, _IMAGES, _EACH = 4, 6, 4  # of a step: encodings of one class are what is told apart
_ROUNDS = 6
_BLOCK = 256
_EXAMINED = 1500  # encodings, of the first held-out images
_START = 4.0  # weight that all channels together begin with


class Residual(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the maps."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1)
        plain = inputs == outputs and stride == 1
        self.past = nn.Identity() if plain else nn.Conv2d(inputs, outputs, 1, stride)
        nn.init.zeros_(self.second.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, outputs, h/stride, w/stride]."""
        found: Tensor = self.past(maps) + self.second(relu(self.first(relu(maps))))
        return found


def _branch(channels: int, features: int) -> nn.Sequential:
    """A convolution and three residual blocks, the first of which halves the maps."""
    blocks = [Residual(features, features, 2 if number == 0 else 1) for number in range(_BLOCKS)]
    return nn.Sequential(nn.Conv2d(channels, features, 3, 1, 1), *blocks)


class Comparative(nn.Module):
    """Places of encodings, and how alike two places are."""

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.coarse = _branch(channels, features)
        self.centre = _branch(channels, features)
        self.importance = nn.Parameter(torch.full((2 * features,), _START / features).expm1().log())
        self.threshold = nn.Parameter(torch.tensor(_START / 2))

    def forward(self, scaled: Tensor) -> Tensor:
        """[n, e] places of encodings [n, c, h, w] over their largest label weight."""
        height, width = scaled.shape[-2:]
        top, left = height // 4, width // 4
        middle = scaled[..., top : height - top, left : width - left]
        both = (self.coarse(scaled[..., ::2, ::2]), self.centre(middle))
        maps = [normalize(relu(each).flatten(2), dim=2) for each in both]
        few, many = (softplus(part).sqrt().view(1, -1, 1) for part in self.importance.chunk(2))
        return torch.cat([(maps[0] * few).flatten(1), (maps[1] * many).flatten(1)], 1)

    def odds(self, places: Tensor, others: Tensor) -> Tensor:
        """Log-odds [n, m] that places [n, e] and [m, e] are of one image."""
        return places @ others.T - self.threshold


@dataclass(frozen=True)
class Comparer:
    """The trained network, and the `spread` of what it is shown."""

    network: Comparative
    centre: Tensor
    spread: Tensor
    exam: float

    @classmethod
    def of(cls, view: View) -> Comparer:
        """What the preparation made."""
        kept = view.made(COMPARATIVE.name)
        features = kept["net.coarse.0.weight"].shape[0]
        network = Comparative(view.shape[0], features).to(view.device)
        restore(network, kept)
        return cls(network, kept["centre"], kept["spread"], float(kept["exam"]))

    @torch.no_grad()
    def places(self, members: Members) -> Tensor:
        """[m, e], block by block."""
        rows = torch.arange(len(members), device=members.share.device)
        blocks = ((members[part].scaled - self.centre) / self.spread for part in rows.split(_BLOCK))
        return torch.cat([self.network(block) for block in blocks])


def learn(
    view: View,
    _budget: Budget,
    progress: Progress,
    *,
    compare_features: int = 32,
    compare_steps: int = 300,
    compare_rate: float = 2e-3,
    pair_images: int = 50_000,
) -> Mapping[str, Tensor]:
    """The preparation `comparative`."""
    rng = view.rng.stream(use="comparative")
    samples = view.public[:pair_images]
    held = held_out(len(samples))
    law = Law.of(view, bare=False)
    exam = lesson_of(view, law, samples[:held], _ROUNDS, rng.stream(use="exam"))
    scaled = exam.members.scaled
    centre, spread = scaled.mean(0), scaled.std().clamp(min=1e-12)
    network = Comparative(view.shape[0], compare_features).to(view.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=compare_rate)
    source = lessons(view, law, samples[held:], _ROUNDS, rng.stream(use="lessons"))
    batches = _batches(source, rng.stream(use="batches"))

    def loss_of(batch: tuple[Lesson, Tensor]) -> Tensor:
        lesson, rows = batch
        return balanced(network, (lesson.members[rows].scaled - centre) / spread, lesson, rows)

    losses = descend(
        network,
        optimizer,
        islice(batches, compare_steps),
        loss_of,
        schedule=schedule(optimizer, compare_steps),
        longest=1.0,
        precision=view.precision,
    )
    for step, loss in enumerate(losses, 1):
        if step % 10 == 0 or step == compare_steps:
            progress(step, compare_steps, f"pairs: {float(loss):.3f} nats")
    network.eval()
    kept = {**snapshot(network), "centre": centre, "spread": spread}
    some = exam.members[torch.arange(min(len(scaled), _EXAMINED), device=centre.device)]
    places = Comparer(network, centre, spread, 0.0).places(some)
    return {**kept, "exam": pair_auc(places, exam.owner[: len(some)], some.leading)}


def _batches(source: Iterator[Lesson], rng: Stream) -> Iterator[tuple[Lesson, Tensor]]:
    """Rows [b] of a lesson: some images of each of a few classes, some encodings of each."""
    turn = 0
    for lesson in source:
        usable = lesson.usable
        steps = max(1, len(usable) // (_CLASSES * _IMAGES))
        for _ in range(steps):
            yield lesson, _rows(lesson, rng.stream(turn=turn))
            turn += 1


def _rows(lesson: Lesson, rng: Stream) -> Tensor:
    usable = lesson.usable
    order = usable[rng.permutation(len(usable)).to(usable.device)]
    kinds = lesson.labels[order]
    present = kinds.unique()
    drawn = present[rng.permutation(len(present))[:_CLASSES].to(present.device)]
    images = torch.cat([order[kinds == kind][:_IMAGES] for kind in drawn])
    rows: Tensor = lesson.draw(images, _EACH, rng).flatten().unique()
    return rows


def _pairs(lesson: Lesson, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(one image, different images) [b, b] bool, of pairs whose leading labels are equal."""
    owner, kind = lesson.owner[rows], lesson.members.leading[rows]
    equal = kind.view(-1, 1) == kind
    same = owner.view(-1, 1) == owner
    other = equal & ~same
    return (same & equal).fill_diagonal_(False), other


def balanced(network: Comparative, shown: Tensor, lesson: Lesson, rows: Tensor) -> Tensor:
    """Cross-entropy [] in nats; both kinds of pairs count half, chance is log 2."""
    places = network(shown)
    odds = network.odds(places, places)
    same, other = _pairs(lesson, rows)
    return (_mean(softplus(-odds), same) + _mean(softplus(odds), other)) / 2


def _mean(values: Tensor, where: Tensor) -> Tensor:
    return (values * where).sum() / where.sum().clamp(min=1)

"""Clusters that the attacker knows: its own images, encoded several times by the owner's law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.luo.members import Members, leading_sources
from harness_plugins.resizing import fit_images
from harness_plugins.signs.exercise import encode, hides_signs, mixtures_of

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Samples, Stream, View

_GROUP = 1000  # images that meet in mixtures: as many as are encoded in a moment
_LOOK = 500


@dataclass(frozen=True)
class Law:
    """What the defense does, as the attacker's own images show it.

    Signs are `hidden` or not; `bare` takes masks off all the same, as where they are known. No
    image gets more than `largest` weight.
    """

    hidden: bool
    bare: bool
    largest: float

    @classmethod
    def of(cls, view: View, *, bare: bool) -> Law:
        """By a look at some public images."""
        work = encode(view, view.public[:_LOOK], view.rng.stream(use="look"))
        return cls(hides_signs(work), bare, float(work.weights.max()))

    def seen(self, samples: Samples, encoded: Encoded, view: View) -> Tensor:
        """[n, *shape] what the attacker works on."""
        images = mixtures_of(samples, encoded) if self.bare else encoded.images
        rows = fit_images(images.to(view.device), view.shape)
        return rows.abs() if self.hidden and not self.bare else rows


@dataclass(frozen=True)
class Lesson:
    """Images of the attacker's own, and all their encodings in which they lead.

    `members` are those encodings, m of them; `owner` [m] says whose, in `images` [n, *shape] with
    hard `labels` [n]. They are sorted by owner: `first` [n] and `count` [n] say where.
    """

    members: Members
    owner: Tensor
    images: Tensor
    labels: Tensor
    first: Tensor
    count: Tensor

    @classmethod
    def of(cls, members: Members, owner: Tensor, samples: Samples) -> Lesson:
        """From rows in any order; those that no image of `samples` leads are left out."""
        order = owner.argsort(stable=True)
        order = order[owner[order] >= 0]
        count = owner[order].bincount(minlength=len(samples))
        labels = samples.labels.to(owner.device)
        first = count.cumsum(0) - count
        return cls(members[order], owner[order], samples.images, labels, first, count)

    @property
    def usable(self) -> Tensor:
        """Images that lead somewhere."""
        return self.count.nonzero().squeeze(1)

    def draw(self, images: Tensor, each: int, rng: Stream) -> Tensor:
        """[b, each] members of some of the images [b], with replacement."""
        chance = rng.uniform(len(images), each).to(self.count.device)
        return self.first[images].view(-1, 1) + (chance * self.count[images].view(-1, 1)).long()

    def strangers(self, images: Tensor, each: int, rng: Stream) -> Tensor:
        """[b, each] members of any image of the class: what lands in a cluster by mistake."""
        chance = rng.uniform(len(images), each).to(self.count.device)
        classes = self.labels[self.owner]
        order = classes.argsort(stable=True)
        sizes = classes.bincount(minlength=int(self.labels.max()) + 1)
        start = sizes.cumsum(0) - sizes
        own = self.labels[images]
        return order[start[own].view(-1, 1) + (chance * sizes[own].view(-1, 1)).long()]


def lessons(view: View, law: Law, samples: Samples, rounds: int, rng: Stream) -> Iterator[Lesson]:
    """Without end: fresh groups of the samples, each encoded `rounds` times."""
    turn = 0
    while True:
        order = rng.stream(turn=turn).permutation(len(samples)).to(samples.labels.device)
        for number, group in enumerate(order.chunk(-(-len(order) // _GROUP))):
            yield lesson_of(view, law, samples[group], rounds, rng.stream(turn=turn, group=number))
        turn += 1


def lesson_of(view: View, law: Law, samples: Samples, rounds: int, rng: Stream) -> Lesson:
    """One group of images, encoded and sorted out."""
    seen, labels, owner = [], [], []
    classes = samples.labels.to(view.device)
    for number in range(rounds):
        encoded = view.encoder.encode(samples, view.public, rng.stream(round=number))
        seen.append(law.seen(samples, encoded, view))
        labels.append(encoded.labels.to(view.device))
        weights = encoded.secrets.weights.to(view.device)
        sources = encoded.secrets.sources.to(view.device)
        owner.append(leading_sources(weights, sources, classes, labels[-1].argmax(1)))
    members = Members.of(torch.cat(seen), torch.cat(labels), law.largest)
    return Lesson.of(members, torch.cat(owner), samples)

"""Who stands in for the population that targets are drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from harness_plugins.ceilings.exchangeable import FEWEST
from harness_plugins.ceilings.exchangeable.posterior import Candidates
from harness_plugins.ceilings.exchangeable.visibility import partners

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import OwnersView

PARTS = (8, 4, 2)
"""Disjoint sets hold an eighth, a quarter and half of the candidates."""


@dataclass(frozen=True)
class Population:
    """Targets, and others that are drawn like them; of each subject one image, where there are any.

    `rows` [t] are the targets' places among the private images. `targets` [t, d] and `others`
    [m, d] are float32, `labels` and `other_labels` their classes. `told` [t, m] bool are those of
    the others that are mixed with a target: whoever is told so does not look for it there.
    """

    rows: Tensor
    targets: Tensor
    labels: Tensor
    others: Tensor
    other_labels: Tensor
    told: Tensor | None

    @classmethod
    def of(cls, view: OwnersView, targets: int, most: int) -> Population:
        """Others are private images that are not judged, and public ones that are drawn alike.

        They come in a random order, none of them twice, and `most` of them at the most. The first
        `targets` that are judged are targets here; of those that are judged none is another.
        """
        n, known = len(view.private), len(view.public) if view.public_alike else 0
        rows = torch.arange(min(targets, view.targets))
        places = torch.arange(view.targets, n + known)
        if len(places):  # a stream has no permutation of nothing
            places = places[view.rng.stream(use="candidates").permutation(len(places))]
        if view.subjects is not None:
            rows, places = _one_of_each(view.subjects, rows, places)
        places = places[:most]
        own = view.private[rows]
        others, labels = _gathered(view, places)
        inside = places < n
        told = None
        if bool(inside.any()):
            told = torch.zeros(len(rows), len(places), dtype=torch.bool)
            count = int(rows.max()) + 1
            mixed = partners(view.sources.flatten(0, 1), count, n + len(view.public))
            told[:, inside] = mixed[rows][:, places[inside]]
        return cls(rows, own.images.flatten(1), own.labels, others, labels, told)

    @property
    def whole(self) -> Candidates:
        """All targets among all others."""
        return Candidates(self.targets, self.others, self.told, sets_of(len(self.others)))

    def classes(self) -> Iterator[tuple[Tensor, Candidates]]:
        """For each class of the targets: which targets, and those among others of the class."""
        for each in self.labels.unique():
            rows = (self.labels == each).nonzero()[:, 0]
            alike = (self.other_labels == each).nonzero()[:, 0]
            told = None if self.told is None else self.told[rows][:, alike]
            yield rows, Candidates(self.targets[rows], self.others[alike], told)


def _one_of_each(subjects: Tensor, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """One target of each subject, and one other of each subject that no target is of.

    Images of one subject are alike: they are no independent draws from the population. With one
    of each, target and candidates are a random image of a random subject.
    """
    taken: set[int] = set()

    def firsts(found: Tensor) -> Tensor:
        kept = []
        for place in found.tolist():
            subject = int(subjects[place])
            if subject < 0 or subject not in taken:
                kept.append(place)
            taken.add(subject)
        return torch.tensor(kept, dtype=torch.int64)

    chosen = firsts(rows)
    return chosen, firsts(places)


def _gathered(view: OwnersView, places: Tensor) -> tuple[Tensor, Tensor]:
    """Images [m, d] and labels [m] of places: private images from 0, public ones after them."""
    n = len(view.private)
    images = torch.empty(len(places), *view.private.shape)
    labels = torch.empty(len(places), dtype=torch.int64)
    for chosen, samples, shift in ((places < n, view.private, 0), (places >= n, view.public, n)):
        if bool(chosen.any()):
            part = samples[places[chosen] - shift]
            images[chosen], labels[chosen] = part.images, part.labels
    return images.flatten(1), labels


def sets_of(count: int) -> tuple[slice, ...]:
    """Disjoint ranges of growing size, each of enough candidates."""
    ends = [0]
    for part in PARTS:
        ends.append(ends[-1] + count // part)
    ranges = (slice(a, b) for a, b in pairwise(ends))
    return tuple(each for each in ranges if each.stop - each.start >= FEWEST)

"""From likeness to memberships: prototypes of images, and encodings shared out among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from harness_plugins.attacks.carlini.cliques import cliques
from harness_plugins.clusters.assignment import Rules, flow, greedy
from harness_plugins.clusters.labels import PRESENT, images_of_classes
from harness_plugins.clusters.membership import Membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from harness.api import Stream
    from harness_plugins.clusters.published import Published

    Assign = Callable[[Tensor, Rules, Tensor], Tensor]

_SEEDS = 200  # runs in each class
_FAIR = 0.2  # of the runs that the clearest image of a class gets: fewer are no image
_RIDGE = 0.05  # of the encodings that an image is in, as so many that show nothing
ASSIGN: dict[str, Assign] = {
    "flow": flow,
    "greedy": lambda scores, rules, _: greedy(scores, rules),
}


def starts(
    places: Tensor, published: Published, rng: Stream, *, told: bool = True
) -> tuple[Tensor, Tensor]:
    """Prototypes [c, e] and the class [c] of each: cliques among the rows that name a class.

    As many as labels say that the class has images, if the number of images is `told`; else
    those that a fair share of runs agrees on, and no more in all than a round has rows.
    """
    counts = images_of_classes(published.labels, published.n, published.privates).tolist()
    size = max(2, published.rounds * max(1, published.uses or published.privates) // 2)
    found, classes, runs = [], [], []
    for name, count in enumerate(counts):
        rows = (published.labels[:, name] > PRESENT).nonzero().squeeze(1)
        if not len(rows) or (told and not count):
            continue
        most = count if told else published.n
        grown = cliques(places[rows], most, size, _SEEDS, rng.stream(of=name), relax=told)
        kept = grown if told else grown.agreed_on(_FAIR)
        found.append(places[rows][kept.members].mean(1))
        classes.append(torch.full((len(kept),), name))
        runs.append(kept.runs)
    best = torch.cat(runs).argsort(descending=True, stable=True)[: published.n].to(places.device)
    return torch.cat(found)[best], torch.cat(classes).to(places.device)[best]


def settled(
    places: Tensor,
    published: Published,
    begun: tuple[Tensor, Tensor],
    assign: Assign,
    turns: int,
    stepped: Callable[[int], None],
) -> tuple[Membership, Tensor]:
    """Memberships and prototypes in turn, until nothing changes; and each cluster's class."""
    prototypes, classes = begun
    rules = published.rules(classes)
    before: Tensor | None = None
    for turn in range(turns):
        scores = places @ normalize(prototypes).T
        clusters = assign(scores, rules, published.rounds_of)
        found = Membership.by_labels(clusters, published.labels, classes)
        stepped(turn + 1)
        if before is not None and torch.equal(before, clusters):
            break
        prototypes, before = fitted(places, found), clusters
    return found, classes


def fitted(places: Tensor, found: Membership) -> Tensor:
    """[n, e] prototypes whose mixtures come nearest to the encodings' places."""
    mixed = found.dense()
    gram = mixed.T @ mixed
    gram += torch.diag(_RIDGE * gram.diagonal().clamp(min=1e-6))
    solved: Tensor = torch.linalg.solve(gram, mixed.T @ places)
    return solved

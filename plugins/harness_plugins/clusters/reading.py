"""Memberships read anew off the images that they led to.

Once there are images, what an encoding should look like is known for every choice of its members:
those that come nearest are taken, all of a round together, each slot by itself with the other
slots as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness_plugins.clusters.assignment import flow
from harness_plugins.clusters.membership import Membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from harness_plugins.clusters.assignment import Rules
    from harness_plugins.clusters.published import Published

    Fold = Callable[[Tensor], Tensor]

_NUMBERS = 2**24  # in memory at a time
_STEPS = 20  # of the weights that are tried
_WORST = 2.0  # relative error beyond which one is as bad as another


def reread(
    published: Published,
    images: Tensor,
    classes: Tensor,
    found: Membership,
    *,
    members: bool = True,
) -> Membership:
    """Each slot's best image [n, d] of its class, and then the weights that labels leave open.

    All of a round are decided together, under the rules that held for likeness; without
    `members` only weights are read.
    """
    seen, fold = published.seen.flatten(1), folding(published)
    if members:
        rules = published.rules(classes)
        clusters = flow(_fits(seen, images, found, rules, fold), rules, published.rounds_of)
        found = Membership.by_labels(clusters, published.labels, classes)
    return _with_weights(seen, images, classes, found, fold)


def folding(published: Published) -> Fold:
    """What masks do to mixtures: nothing is left but absolute values, if there are any."""
    return torch.abs if published.hidden else _as_they_are


def _as_they_are(rows: Tensor) -> Tensor:
    return rows


def _fits(seen: Tensor, images: Tensor, found: Membership, rules: Rules, fold: Fold) -> Tensor:
    """[m, n] minus the relative squared error of a row that holds an image in its class's slot.

    The other slots are as they are.
    """
    energy = seen.square().sum(1).clamp(min=1e-12)
    fits = seen.new_full((len(seen), found.n), -_WORST)
    mixed = found.mixture.apply(images)
    for slot in range(found.clusters.shape[1]):
        own, weight = found.clusters[:, slot], found.weights[:, slot]
        rest = mixed - weight.view(-1, 1) * images[own.clamp(min=0)]
        for name in rules.classes.unique():
            here = (own >= 0) & (rules.classes[own.clamp(min=0)] == name)
            rows, choices = here.nonzero(), (rules.classes == name).nonzero().squeeze(1)
            part = rows.squeeze(1)
            errors = _errors(seen[part], rest[part], weight[part], images[choices], fold)
            errors = (errors / energy[part].view(-1, 1)).clamp(max=_WORST)
            mates = (found.clusters[part].unsqueeze(2) == choices).sum(1) > (
                own[part].view(-1, 1) == choices
            )
            fits[rows, choices] = torch.maximum(
                fits[rows, choices], -errors.masked_fill(mates, _WORST)
            )
    return fits


def unexplained(published: Published, images: Tensor, found: Membership) -> float:
    """Share of the encodings' energy that images [n, d] and memberships leave over."""
    seen = published.seen.flatten(1)
    left = (folding(published)(found.mixture.apply(images)) - seen).square_().sum()
    return float(left / seen.square().sum().clamp(min=1e-12))


def _errors(seen: Tensor, rest: Tensor, weight: Tensor, choices: Tensor, fold: Fold) -> Tensor:
    """[rows, choices] squared error of rows that hold one of the choices beside the rest."""
    errors = seen.new_empty(len(seen), len(choices))
    block = max(1, _NUMBERS // choices.numel())
    for start in range(0, len(seen), block):
        part = slice(start, start + block)
        whole = rest[part].unsqueeze(1) + weight[part].view(-1, 1, 1) * choices
        errors[part] = (fold(whole) - seen[part].unsqueeze(1)).square_().sum(2)
    return errors


def _with_weights(
    seen: Tensor, images: Tensor, classes: Tensor, found: Membership, fold: Fold
) -> Membership:
    """What two images of one class have together, divided as serves best."""
    clusters, weights = found.clusters, found.weights.clone()
    named = torch.where(clusters >= 0, classes[clusters.clamp(min=0)], -1)
    for one in range(clusters.shape[1]):
        for other in range(one + 1, clusters.shape[1]):
            alike = (named[:, one] == named[:, other]) & (named[:, one] >= 0)
            rows = (alike & ~found.sure[:, one]).nonzero().squeeze(1)
            if len(rows):
                pair = [one, other]
                part = replace(
                    found, clusters=clusters[rows], weights=weights[rows], sure=found.sure[rows]
                )
                weights[rows.view(-1, 1), torch.tensor(pair, device=rows.device)] = _divided(
                    seen[rows], images, part, pair, fold
                )
    return replace(found, weights=weights)


def _divided(
    seen: Tensor, images: Tensor, found: Membership, pair: list[int], fold: Fold
) -> Tensor:
    """[rows, 2] weights with the same sum."""
    together = found.weights[:, pair].sum(1, keepdim=True)
    first, second = (images[found.clusters[:, place]] for place in pair)
    rest = found.mixture.apply(images)
    rest -= found.weights[:, pair[0], None] * first + found.weights[:, pair[1], None] * second
    least, best = torch.full_like(together, torch.inf), together / 2
    for step in range(1, _STEPS):
        share = together * (step / _STEPS)
        mixed = rest + share * first + (together - share) * second
        error = (fold(mixed) - seen).square().sum(1, keepdim=True)
        best = torch.where(error < least, share, best)
        least = torch.minimum(error, least)
    return torch.cat([best, together - best], 1)

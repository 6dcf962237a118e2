"""Memberships read anew off the images that they led to.

Once there are images, what an encoding should look like is known for every choice of its members:
the choice that comes nearest is taken, slot by slot, with the other slots as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from harness_plugins.clusters.membership import Membership

    Fold = Callable[[Tensor], Tensor]

_NUMBERS = 2**24  # in memory at a time
_STEPS = 20  # of the weights that are tried


def reread(
    seen: Tensor, images: Tensor, classes: Tensor, found: Membership, fold: Fold
) -> Membership:
    """Each slot's best image [n, d] of its class, and then the weights that labels leave open.

    `seen` [m, d] is `fold` of the mixtures.
    """
    for slot in range(found.clusters.shape[1]):
        found = _with_images(seen, images, classes, found, slot, fold)
    return _with_weights(seen, images, classes, found, fold)


def _with_images(
    seen: Tensor, images: Tensor, classes: Tensor, found: Membership, slot: int, fold: Fold
) -> Membership:
    own, weight = found.clusters[:, slot], found.weights[:, slot]
    rest = found.mixture.apply(images)
    rest -= weight.view(-1, 1) * images[own.clamp(min=0)]
    clusters = found.clusters.clone()
    for name in classes.unique():
        rows = ((own >= 0) & (classes[own.clamp(min=0)] == name)).nonzero().squeeze(1)
        choices = (classes == name).nonzero().squeeze(1)
        if len(choices) < 2 or not len(rows):
            continue
        errors = _errors(seen[rows], rest[rows], weight[rows], images[choices], fold)
        taken = found.clusters[rows].unsqueeze(2) == choices
        taken[:, slot] = False
        errors[taken.any(1)] = torch.inf
        clusters[rows, slot] = choices[errors.argmin(1)]
    return replace(found, clusters=clusters)


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
                weights[rows.view(-1, 1), torch.tensor(pair)] = _divided(
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

"""Which clusters each encoding belongs to, all of a round decided at once.

An encoding holds as many private images as it has slots, each of a class that its label names,
and every image is in as many encodings of a round as the law says. The best choice under these
rules is a flow: a linear programme whose solutions are whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import CellFailed

if TYPE_CHECKING:
    from torch import Tensor

_SHORT = 100.0
"""What an empty slot, or a class without an image, costs; a likeness is worth 2 at the most."""


@dataclass(frozen=True)
class Rules:
    """Who may be where.

    `present` [m, classes] says which classes each row's label names, `classes` [n] the class of
    each cluster, `slots` how many images a row holds, `uses` in how many rows of a round each
    image is, 0 where that is not known.
    """

    present: Tensor
    classes: Tensor
    slots: int
    uses: int

    @property
    def allowed(self) -> Tensor:
        """[m, n] whether a cluster's class is in a row's label."""
        return self.present[:, self.classes]


def greedy(scores: Tensor, rules: Rules) -> Tensor:
    """[m, slots] int64, -1 for none: each row by itself takes its nearest allowed clusters.

    As Carlini et al. assign. A class that is in the label gets an image before others get two.
    """
    scores = scores.masked_fill(~rules.allowed, -torch.inf)
    best = torch.full_like(rules.present, -torch.inf, dtype=scores.dtype)
    best.scatter_reduce_(1, rules.classes.expand(len(scores), -1), scores, "amax")
    first = scores == best.gather(1, rules.classes.expand(len(scores), -1))
    count = min(rules.slots, scores.shape[1])
    order = (scores + _SHORT * (first & rules.allowed)).topk(count, dim=1)
    found = torch.where(order.values > -torch.inf, order.indices, -1)
    return _padded(found, rules.slots)


def _padded(found: Tensor, slots: int) -> Tensor:
    spare = found.new_full((len(found), slots - found.shape[1]), -1)
    return torch.cat([found, spare], 1)


def flow(scores: Tensor, rules: Rules, rounds: Tensor) -> Tensor:
    """[m, slots] int64, -1 for none: the largest sum of scores [m, n] in each of the `rounds` [m].

    Slots stay empty where there are too few clusters for all of them.
    """
    found = torch.full((len(scores), rules.slots), -1, dtype=torch.int64)
    worth, allowed = scores.double().cpu(), rules.allowed.cpu()
    for turn in rounds.unique().tolist():
        rows = (rounds == turn).nonzero().squeeze(1).cpu()
        part = Rules(rules.present.cpu()[rows], rules.classes.cpu(), rules.slots, rules.uses)
        found[rows] = _round(worth[rows], allowed[rows], part)
    return found.to(scores.device)


def _round(worth: Tensor, allowed: Tensor, rules: Rules) -> Tensor:
    """[rows, slots] of one round."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, vstack

    row, image = allowed.nonzero().T.numpy()
    if not len(row):
        return torch.full((len(worth), rules.slots), -1, dtype=torch.int64)
    classes = rules.classes.numpy()[image]
    m, n = worth.shape
    ones, each = np.ones(len(row)), np.arange(len(row))
    in_row = csr_array((ones, (row, each)), shape=(m, len(row)))
    in_image = csr_array((ones, (image, each)), shape=(n, len(row)))
    named, group = np.unique(row * rules.present.shape[1] + classes, return_inverse=True)
    in_class = csr_array((ones, (group, each)), shape=(len(named), len(row)))
    # Every class that is named has an image, or pays; every row has no more than its slots.
    missing = csr_array((-np.ones(len(named)), (np.arange(len(named)),) * 2))
    none = csr_array((m + n, len(named)))
    upper = [np.full(m, float(rules.slots)), np.full(n, float(rules.uses or m))]
    outcome = linprog(
        np.concatenate([-worth.numpy()[row, image] - _SHORT, np.full(len(named), 2 * _SHORT)]),
        A_ub=vstack([hstack([vstack([in_row, in_image]), none]), hstack([-in_class, missing])]),
        b_ub=np.concatenate([*upper, -np.ones(len(named))]),
        bounds=np.column_stack([np.zeros(len(row) + len(named)), np.ones(len(row) + len(named))]),
        method="highs",
    )
    if not outcome.success:
        raise CellFailed(f"no assignment of encodings to clusters was found: {outcome.message}")
    taken = np.flatnonzero(outcome.x[: len(row)] > 0.5)
    return _listed(torch.from_numpy(row[taken]), torch.from_numpy(image[taken]), m, rules.slots)


def _listed(row: Tensor, image: Tensor, m: int, slots: int) -> Tensor:
    """[m, slots] from pairs in order of their rows."""
    counts = row.bincount(minlength=m)
    place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    found = torch.full((m, slots), -1, dtype=torch.int64)
    found[row, place] = image
    return found

"""Sets of encodings that all look alike, grown greedily (Carlini et al., the second stage).

A set starts at one encoding and takes in, again and again, the one that its members together
are nearest to. What several such runs come to is taken for one private image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream

_AT_ONCE = 256


@dataclass(frozen=True)
class Cliques:
    """`members` [c, size] rows of each clique, and by how many runs each was found [c]."""

    members: Tensor
    runs: Tensor

    def __len__(self) -> int:
        return len(self.members)

    def agreed_on(self, share: float) -> Cliques:
        """Those that so large a share of runs found, of those that the first one has."""
        fair = self.runs >= share * self.runs.max()
        return Cliques(self.members[fair.to(self.members.device)], self.runs[fair])


def grown(places: Tensor, seeds: Tensor, size: int) -> Tensor:
    """[seeds, size] rows: from each seed, by the largest summed likeness to those inside."""
    found = [_grow(places, part, size) for part in seeds.split(_AT_ONCE)]
    return torch.cat(found) if found else seeds.new_zeros(0, size)


def _grow(places: Tensor, seeds: Tensor, size: int) -> Tensor:
    members = seeds.view(-1, 1)
    inside = torch.zeros(len(seeds), len(places), dtype=torch.bool, device=places.device)
    inside.scatter_(1, members, True)
    scores = places[seeds] @ places.T
    for _ in range(size - 1):
        taken = scores.masked_fill(inside, -torch.inf).argmax(1, keepdim=True)
        inside.scatter_(1, taken, True)
        scores += places[taken.squeeze(1)] @ places.T
        members = torch.cat([members, taken], 1)
    return members


def agreed(members: Tensor, rows: int, count: int) -> Cliques:
    """At most `count` of the cliques [runs, size] of so many `rows`, no two half the same.

    Those that most runs agree on come first: two runs agree where they share half of their
    members.
    """
    size = members.shape[1]
    held = torch.zeros(len(members), rows, device=members.device)
    held.scatter_(1, members, 1.0)
    alike = held @ held.T >= size / 2
    left = torch.ones(len(members), dtype=torch.bool, device=members.device)
    chosen, runs = [], []
    for _ in range(count):
        votes = (alike & left).sum(1) * left
        best = int(votes.argmax())
        if not bool(left[best]):
            break
        chosen.append(best)
        runs.append(int(votes[best]))
        left &= ~alike[best]
    return Cliques(members[chosen], torch.tensor(runs))


def cliques(
    places: Tensor, count: int, size: int, seeds: int, rng: Stream, *, relax: bool = True
) -> Cliques:
    """At most `count` cliques of `size` of the rows that have these `places` [m, e].

    Where there are fewer, half as large ones are looked for, as Carlini et al. `relax` theirs.
    """
    chosen = rng.permutation(len(places))[:seeds].to(places.device)
    size = min(size, len(places))
    while True:
        found = agreed(grown(places, chosen, size), len(places), count)
        if len(found) >= count or size <= 2 or not relax:
            return found
        size = max(2, size // 2)

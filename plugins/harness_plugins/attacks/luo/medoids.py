"""Neighbour sets, and k-medoids on them (Luo et al.): encodings into as many clusters as images.

Two encodings are as alike as the sets of their nearest encodings: what is near to the same
others is of the same image, where a single score may err. The sets are sparse rows, scores are
made in blocks, so that memory grows with m, never with its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024
_SWEEPS = 30
_ALIKE = 0.2  # share of common neighbours from which two candidates are taken for one image
_FEW = 0.5  # of the median support of medoids: a candidate with less is no image of its own


@dataclass(frozen=True)
class Clusters:
    """`numbers` [m] int64, the cluster of each place, and `medoids` [k], the place it is about.

    `likeness` [m] is that of each place to the mean of the others in its cluster.
    """

    numbers: Tensor
    medoids: Tensor
    likeness: Tensor

    def __len__(self) -> int:
        return len(self.medoids)


def neighbour_sets(places: Tensor, size: int) -> Tensor:
    """[m, size] int64: of each place the nearest, itself first; fewer where there are fewer."""
    size = min(size, len(places))
    found = []
    for start in range(0, len(places), _BLOCK):
        scores = places[start : start + _BLOCK] @ places.T
        own = torch.arange(len(scores), device=scores.device)
        scores[own, own + start] = torch.inf
        found.append(scores.topk(size, dim=1).indices)
    return torch.cat(found)


def clustered(places: Tensor, size: int, count: int | None = None) -> Clusters:
    """Places [m, e] in `count` clusters of about `size`, or in as many as there seem to be.

    Fewer clusters than asked for where there are fewer places.
    """
    sets = _Sets(neighbour_sets(places, size))
    medoids = sets.seeds(count)
    for _ in range(_SWEEPS):
        numbers = _nearest(sets, places, medoids)
        moved = sets.central(numbers, medoids)
        if torch.equal(moved, medoids):
            break
        medoids = moved
    return _settled(places, _nearest(sets, places, medoids), medoids)


class _Sets:
    """Sets of neighbours as a sparse matrix of ones."""

    def __init__(self, sets: Tensor) -> None:
        from scipy.sparse import csr_array

        m, self.size = sets.shape
        columns = sets.cpu().numpy().ravel()
        starts = range(0, m * self.size + 1, self.size)
        self.device = sets.device
        ones = torch.ones(m * self.size).numpy()
        self.matrix = csr_array((ones, columns, list(starts)), shape=(m, m))

    def alike(self, rows: Tensor) -> Tensor:
        """[m, k] share of their neighbours that places have in common with those in `rows`."""
        common = self.matrix @ self.matrix[rows.cpu().numpy()].T
        return torch.from_numpy(common.toarray()).to(self.device) / self.size

    def support(self) -> Tensor:
        """[m] how much the neighbours of each place have in common with it, on the mean."""
        found = []
        for start in range(0, self.matrix.shape[0], _BLOCK):
            block = self.matrix[start : start + _BLOCK]
            found.append((block @ self.matrix.T).multiply(block).sum(1))
        total = torch.cat([torch.from_numpy(part) for part in found]).to(self.device)
        return total / self.size**2

    def seeds(self, count: int | None) -> Tensor:
        """[k] places that are well supported, and have little in common with each other."""
        support = self.support()
        taken = torch.zeros_like(support)
        chosen: list[int] = []
        while len(chosen) < min(len(support), count or len(support)):
            value = support * (1 - taken) if count else support.where(taken < _ALIKE, 0.0)
            value[chosen] = -1.0
            best = int(value.argmax())
            if not count and chosen and value[best] < _FEW * support[chosen].median():
                break
            chosen.append(best)
            taken = torch.maximum(taken, self.alike(torch.tensor([best])).squeeze(1))
        return torch.tensor(chosen, device=self.device)

    def central(self, numbers: Tensor, medoids: Tensor) -> Tensor:
        """[k] the member of each cluster that has most in common with all of its members."""
        from scipy.sparse import csr_array

        m, k = len(numbers), len(medoids)
        ones = torch.ones(m).numpy()
        members = csr_array((ones, (numbers.cpu().numpy(), torch.arange(m).numpy())), shape=(k, m))
        common = (self.matrix @ (members @ self.matrix).T).toarray()
        scores = torch.from_numpy(common).to(self.device)
        own = torch.nn.functional.one_hot(numbers, k).bool()
        best = torch.where(own, scores, -1.0).max(0)
        return torch.where(best.values >= 0, best.indices, medoids)


def _nearest(sets: _Sets, places: Tensor, medoids: Tensor) -> Tensor:
    """[m] the medoid that has most in common with each place; the score itself breaks ties."""
    scores = places @ places[medoids].T
    span = (scores.max() - scores.min()).clamp(min=1e-12)
    closeness = (scores - scores.min()) / span / sets.size
    numbers = (sets.alike(medoids) + closeness).argmax(1)
    numbers[medoids] = torch.arange(len(medoids), device=numbers.device)
    return numbers


def _settled(places: Tensor, numbers: Tensor, medoids: Tensor) -> Clusters:
    """Places moved to the cluster whose members are nearest on the mean, until none moves."""
    for _ in range(_SWEEPS):
        likeness = _means(places, numbers, len(medoids))
        moved = likeness.argmax(1)
        moved[medoids] = torch.arange(len(medoids), device=moved.device)
        if torch.equal(moved, numbers):
            break
        numbers = moved
    likeness = _means(places, numbers, len(medoids))
    return Clusters(numbers, medoids, likeness.gather(1, numbers.view(-1, 1)).squeeze(1))


def _means(places: Tensor, numbers: Tensor, k: int) -> Tensor:
    """[m, k] mean score of each place with the members of each cluster, itself left out."""
    sums = places.new_zeros(k, places.shape[1]).index_add_(0, numbers, places)
    sizes = numbers.bincount(minlength=k).to(places)
    scores = places @ sums.T
    rows = torch.arange(len(places), device=places.device)
    scores[rows, numbers] -= places.square().sum(1)
    others = sizes.expand(len(places), -1).clone()
    others[rows, numbers] -= 1
    return scores / others.clamp(min=1)

"""Which pair of images each row mixes, and the images: each from the other, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, Stream
    from harness_plugins.attacks.em.rows import Rows

_NUMBERS = 1 << 22
"""Pairs that are compared at a time."""
_WARM, _COOL = 6.0, 1e-3
"""Noise that is taken to be there beside the true one, at first and at last, in units of an
image's variance a coordinate. Without it the first memberships are final, and mostly wrong."""
_COOLING = 2 / 3
"""Part of the steps in which it falls; in the rest there is none."""
_LAST = 5
"""Steps of all images after those of one class."""
_START = 0.3
"""Deviation of the first images about their class means, of that of images."""


@dataclass(frozen=True)
class Found:
    """`images` [n, q] about class means, how likely they and the rows are, and the best pairs.

    `pairs` [m, 2] int64 and the `weights` [m] of the first of each.
    """

    images: Tensor
    likelihood: float
    pairs: Tensor
    weights: Tensor


@dataclass(frozen=True)
class _Told:
    """What the rows say of images once memberships are guessed: a system for each coordinate."""

    gram: Tensor
    pull: Tensor
    likelihood: Tensor
    pairs: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Search:
    """For `rows`, of images whose classes [n] are known, with `variances` [q] about their means."""

    rows: Rows
    classes: Tensor
    variances: Tensor
    steps: int

    def run(self, restarts: int, redraws: int, rng: Stream, progress: Progress) -> Found:
        """The likeliest of several starts, then of each class drawn anew beside the others.

        A start leaves some images twice in the answer and others not at all. Whether a class has
        come out right hardly depends on the others, so each is tried again by itself.
        """
        everything = torch.ones_like(self.classes, dtype=torch.bool)
        each = self.classes.unique().tolist()
        total = restarts + redraws * len(each)
        best = None
        for start in range(restarts):
            images = self._drawn(len(self.classes), rng.stream(start=start))
            found = self._judged(self._settled(images, everything, self.steps, _WARM))
            best = found if best is None or found.likelihood > best.likelihood else best
            progress(start + 1, total, f"log-likelihood {best.likelihood:.1f}")
        assert best is not None
        for turn in range(redraws):
            for place, name in enumerate(each):
                images, here = best.images.clone(), self.classes == name
                images[here] = self._drawn(int(here.sum()), rng.stream(turn=turn, place=place))
                images = self._settled(images, here, self.steps, _WARM)
                found = self._judged(self._settled(images, everything, _LAST, 0.0))
                best = found if found.likelihood > best.likelihood else best
                done = restarts + turn * len(each) + place + 1
                progress(done, total, f"log-likelihood {best.likelihood:.1f}")
        return best

    def _settled(self, images: Tensor, free: Tensor, steps: int, warm: float) -> Tensor:
        """Images [n, q] and memberships in turns; only those that are `free` [n] change."""
        typical = float(self.variances.mean())
        cooling = max(1, round(_COOLING * steps))
        for step in range(steps):
            fallen = warm * (_COOL / _WARM) ** (step / cooling) if step < cooling else 0.0
            told = self._memberships(images, typical * fallen, free)
            images = self._solved(told, images, free)
        return images

    def _judged(self, images: Tensor) -> Found:
        told = self._memberships(images, 0.0, torch.ones_like(self.classes, dtype=torch.bool))
        unlikely = (images.square() / self.variances).sum() / 2
        return Found(images, float(told.likelihood - unlikely), told.pairs, told.weights)

    def _drawn(self, n: int, rng: Stream) -> Tensor:
        drawn = rng.normal(n, len(self.variances)).to(self.variances)
        return _START * drawn * self.variances.sqrt()

    def _solved(self, told: _Told, images: Tensor, free: Tensor) -> Tensor:
        """[n, q] the ridge estimate, (G + 1/v) z = pull for each coordinate; the rest as it is."""
        fixed = told.gram[free][:, ~free] @ images[~free].to(told.gram)
        values, vectors = torch.linalg.eigh(told.gram[free][:, free])
        inside = vectors.T @ (told.pull[free].to(values) - fixed)
        solved = inside / (values.clamp(min=0).view(-1, 1) + 1 / self.variances.to(values))
        images = images.clone()
        images[free] = (vectors @ solved).to(images)
        return images

    def _memberships(self, images: Tensor, warmth: float, free: Tensor) -> _Told:
        """How likely each pair is in each row, if noise were greater by `warmth`; summed up.

        Of rows that may hold an image that is `free` [n].
        """
        n, rows = len(images), self.rows
        gram = torch.zeros(n, n, dtype=torch.float64, device=images.device)
        told = _Told(
            gram,
            torch.zeros_like(images),
            gram.new_zeros(()),
            torch.zeros(len(rows.values), 2, dtype=torch.int64, device=images.device),
            torch.zeros_like(rows.weight),
        )
        for block in self._blocks(free):
            self._add(told, images, block, warmth)
        return told

    def _blocks(self, free: Tensor) -> Iterator[Tensor]:
        """Rows [b] int64 of the same two classes in the same order, one of them `free` [n]."""
        rows, counts = self.rows, self.classes.bincount()
        kinds = rows.first * len(counts) + rows.second
        wanted = set(self.classes[free].tolist())
        for kind in kinds.unique().tolist():
            pair = divmod(kind, len(counts))
            if wanted.intersection(pair):
                size = max(1, _NUMBERS // int(counts[list(pair)].prod()))
                yield from (kinds == kind).nonzero()[:, 0].split(size)

    def _add(self, told: _Told, images: Tensor, block: Tensor, warmth: float) -> None:
        rows, at = self.rows, block[0]
        ones, others = (
            (self.classes == classes[at]).nonzero()[:, 0] for classes in (rows.first, rows.second)
        )
        weights, costs = _costs(rows, block, images[ones], images[others], warmth)
        scores = costs.flatten(1).div(-2 * (rows.noise[block] + warmth).view(-1, 1))
        told.likelihood.add_(scores.logsumexp(1).double().sum())
        best = scores.argmax(1)
        told.pairs[block] = torch.stack([ones[best // len(others)], others[best % len(others)]], 1)
        told.weights[block] = weights.flatten(1).gather(1, best.view(-1, 1))[:, 0]
        chances = scores.softmax(1).view_as(costs) / rows.noise[block].add(warmth).view(-1, 1, 1)
        left = 1 - weights
        seen = rows.values[block]
        told.pull.index_add_(0, ones, (chances * weights).sum(2).T @ seen)
        told.pull.index_add_(0, others, (chances * left).sum(1).T @ seen)
        told.gram[ones, ones] += (chances * weights.square()).sum((0, 2)).double()
        told.gram[others, others] += (chances * left.square()).sum((0, 1)).double()
        both = (chances * weights * left).sum(0).double()
        told.gram[ones.view(-1, 1), others] += both
        told.gram[others.view(-1, 1), ones] += both.T


def _costs(
    rows: Rows, block: Tensor, ones: Tensor, others: Tensor, warmth: float
) -> tuple[Tensor, Tensor]:
    """Weights and squared errors [b, a, c] of rows that mix one of `ones` [a, q], `others` [c, q].

    A weight that no label names is the one that fits best, held near what energies say.
    """
    seen, weight = rows.values[block], rows.weight[block].view(-1, 1, 1)
    with_one, with_other = (seen @ ones.T).unsqueeze(2), (seen @ others.T).unsqueeze(1)
    size, energy = others.square().sum(1), ones.square().sum(1).view(-1, 1)
    cross = ones @ others.T
    base = (seen.square().sum(1).view(-1, 1, 1) - 2 * with_other + size).expand(-1, len(ones), -1)
    slope = with_one - with_other - cross + size
    curve = (energy - 2 * cross + size).clamp(min=0)
    if bool(rows.sure[block[0]]):  # of two classes, and so are all of a block
        return weight.expand_as(base), base - 2 * weight * slope + weight.square() * curve
    firm = (rows.noise[block].view(-1, 1, 1) + warmth) / max(rows.doubt, 1e-12)
    fitted = ((slope + firm * weight) / (curve + firm)).clamp(0, 1)
    strayed = firm * (fitted - weight).square()
    return fitted, base - 2 * fitted * slope + fitted.square() * curve + strayed

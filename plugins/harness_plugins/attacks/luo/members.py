"""Encodings as members of the cluster of the image that leads in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_SLACK = 0.005  # above the largest weight of the law: two images of one class
_TINY = 1e-6


@dataclass(frozen=True)
class Members:
    """Encodings with what their labels tell of the image that leads in them.

    `seen` [m, *shape] is what masks leave, `leading` [m] the class of the largest weight, `share`
    [m] the weight of the image, and `variance` [m] that of the rest relative to it:
    (rest / share)^2.
    """

    seen: Tensor
    leading: Tensor
    share: Tensor
    variance: Tensor

    @classmethod
    def of(cls, seen: Tensor, labels: Tensor, largest: float) -> Members:
        """From labels [m, classes] and the largest weight that the law gives an image."""
        top = labels.max(1)
        share = shares_of(top.values, largest)
        rest = (1 - share).clamp(min=0)
        return cls(seen, top.indices, share, (rest / share).square())

    def __len__(self) -> int:
        return len(self.leading)

    def __getitem__(self, rows: Tensor) -> Members:
        return Members(self.seen[rows], self.leading[rows], self.share[rows], self.variance[rows])

    def with_shares(self, share: Tensor) -> Members:
        """The same with weights from elsewhere."""
        share = share.clamp(min=_TINY)
        return Members(self.seen, self.leading, share, ((1 - share) / share).square())

    def folded(self) -> Members:
        """The same in absolute values."""
        return Members(self.seen.abs(), self.leading, self.share, self.variance)

    @property
    def scaled(self) -> Tensor:
        """[m, *shape] over the weight: the image counts alike in all of them."""
        return self.seen / self.share.view(-1, *[1] * (self.seen.ndim - 1))


def shares_of(top: Tensor, largest: float) -> Tensor:
    """[m] weight of the leading image, of the largest label weights [m].

    What is above the largest weight of the law is two images of one class; which part is whose
    the label does not say, and half is the guess that errs least.
    """
    return torch.where(top > largest + _SLACK, top / 2, top).clamp(min=_TINY)


def leading_sources(weights: Tensor, sources: Tensor, labels: Tensor, leading: Tensor) -> Tensor:
    """[m] the heaviest image of the leading class in each row; -1 where a row has none.

    `weights`, `sources` [m, k] and the hard `labels` [n] of the images; other images, numbered
    from n on, are public ones and not asked for.
    """
    n = len(labels)
    own = sources < n
    fits = own & (labels[sources.clamp(max=n - 1)] == leading.view(-1, 1))
    weight, place = torch.where(fits, weights, weights.new_full((), -1.0)).max(1)
    found = sources.gather(1, place.view(-1, 1)).squeeze(1)
    return torch.where(weight > 0, found, -1)

"""Who is in which encoding, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from harness.api import Channel
from harness_plugins.clusters.labels import PRESENT
from harness_plugins.mixtures.mixture import Mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.clusters.published import Published


@dataclass(frozen=True)
class Membership:
    """`clusters` [m, q] int64 of each encoding, -1 for none, of `n` in all; `weights` [m, q].

    `sure` [m, q] says which weights are certain: those that a label names one by one.
    """

    clusters: Tensor
    weights: Tensor
    sure: Tensor
    n: int

    @classmethod
    def by_labels(cls, clusters: Tensor, labels: Tensor, classes: Tensor) -> Membership:
        """Weights are what labels [m, classes] say of each cluster's class, `classes` [n].

        Several images of one class share what it has evenly, and are not sure.
        """
        there = clusters >= 0
        named = torch.where(there, classes[clusters.clamp(min=0)], -1)
        same = (named.unsqueeze(2) == named.unsqueeze(1)) & there.unsqueeze(1)
        times = same.sum(2).clamp(min=1)
        weights = labels.gather(1, named.clamp(min=0)) / times
        return cls(clusters, weights * there, there & (times == 1), len(classes))

    @classmethod
    def told(cls, view: View, published: Published, weights: bool) -> Membership:
        """The truth, of an oracle; where it does not tell `weights`, labels do.

        The class of an image is then that of the labels of its encodings.
        """
        sources = view.sources.flatten(0, 1)[:, : published.privates]
        if weights:
            true = view.weights.flatten(0, 1)[:, : published.privates]
            return cls(sources, true, torch.ones_like(sources, dtype=torch.bool), published.n)
        classes = classes_of(sources, published.labels, published.n)
        return cls.by_labels(sources, published.labels, classes)

    @property
    def mixture(self) -> Mixture:
        """W [m, n], of private images alone."""
        none = torch.zeros_like(self.weights)
        return Mixture(self.clusters.clamp(min=0), self.weights, none, self.n)

    def dense(self) -> Tensor:
        """W [m, n] with its zeros."""
        full = self.weights.new_zeros(len(self.clusters), self.n)
        return full.scatter_add_(1, self.clusters.clamp(min=0), self.weights)

    def shown(self, view: View, published: Published) -> View:
        """The view of an attacker who knows the mixture: this one, in place of the truth.

        What labels leave over is public images', in equal parts.
        """
        rounds, spare = published.rounds, published.images - published.privates
        weights, sources = self.weights, self.clusters.clamp(min=0)
        if spare:
            left = (1 - weights.sum(1, keepdim=True)).clamp(min=0) / spare
            weights = torch.cat([weights, left.expand(-1, spare)], 1)
            outside = torch.full_like(sources[:, :1], self.n).expand(-1, spare)
            sources = torch.cat([sources, outside], 1)
        known = {
            Channel.WEIGHTS: weights.unflatten(0, (rounds, -1)),
            Channel.SOURCES: sources.unflatten(0, (rounds, -1)),
            Channel.N_PRIVATE: self.n,
        }
        granted = view.granted | set(known)
        return replace(view, channels={**view.channels, **known}, granted=granted)


def classes_of(clusters: Tensor, labels: Tensor, n: int) -> Tensor:
    """[n] the class of each image, by the labels [m, classes] of its encodings.

    `clusters` [m, q] say which of the n images are in each encoding, and may err. All labels of
    an image's encodings name its class, and other classes as often as any label does: the one
    that comes farthest, from how often all labels name it, to being named always. No image has
    a class that no label names; one that is in no encoding has the most usual.
    """
    named = (labels > PRESENT).to(labels)
    usual = named.mean(0)
    votes, held = named.new_zeros(n, len(usual)), named.new_zeros(n, 1)
    for column in clusters.T:
        votes.index_add_(0, column, named)
        held.index_add_(0, column, torch.ones_like(named[:, :1]))
    above = (votes / held.clamp(min=1) - usual) / (1 - usual).clamp(min=1 / len(labels))
    told = torch.where(held > 0, above, usual)
    return told.masked_fill(usual == 0, -torch.inf).argmax(1)

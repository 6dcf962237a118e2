"""What the map is applied to: rows pooled by the image that they hold, and what labels tell.

Tried on public Fashion-MNIST and CIFAR-10 under InstaHide and singularized mixup: the pooled rows
that hold an image, as first image or as partner, have half as much error again explained as the row
it is first in; pooling neighbouring pixels, squares in place of absolute values, and other weights
of rows all do worse or no better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from harness.api import Channel
from harness_plugins.mixtures.classes import class_shares
from harness_plugins.mixtures.law import NoiseLaw
from harness_plugins.mixtures.mixture import Mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, View
    from harness_plugins.mixtures.subspace import Subspace


@dataclass(frozen=True)
class Round:
    """`rows` [n, d] of one round, `labels` [n, classes], `weights` and `sources` [n, k], if any."""

    rows: Tensor
    labels: Tensor | None
    weights: Tensor | None
    sources: Tensor | None


@dataclass(frozen=True)
class Inputs:
    """`features` [n, q], which are penalised, and `known` [n, e], which is not: labels, and 1."""

    features: Tensor
    known: Tensor


@dataclass(frozen=True)
class Lens:
    """How rows are looked at: absolute values where the law has them `hidden`, along a `basis`.

    `typical` is the variance of an image's value; `basis` [d, q], or [0, 0] for all values.
    """

    law: NoiseLaw
    typical: float
    basis: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """[n, q] of rows [n, d]."""
        seen = rows.abs() if self.law.hidden else rows
        return seen @ self.basis if self.basis.numel() else seen

    def inputs(self, turns: Iterable[Round], n: int) -> Inputs:
        """Of `n` images whose rows are known; of the rows of the first round where they are not."""
        rounds = list(turns)
        first = rounds[0]
        one = torch.ones(n, 1, dtype=first.rows.dtype, device=first.rows.device)
        if first.sources is None or first.weights is None:
            told = [] if first.labels is None else [_shares(first.labels)]
            return Inputs(self.of(first.rows), torch.cat([*told, one], 1))
        held = [_mixture(each, n) for each in rounds]
        parts = [self._pooled(each, mix) for each, mix in zip(rounds, held, strict=True)]
        features, labels, total = (sum(part[i] for part in parts) for i in range(3))
        share = torch.as_tensor(total).clamp(min=1e-12)
        told = []
        if first.labels is not None:
            whole = Mixture(*(torch.cat([getattr(m, name) for m in held]) for name in _FIELDS), n)
            every = torch.cat([each.labels for each in rounds if each.labels is not None])
            told = [class_shares(whole, every), labels / share]
        return Inputs(features / share, torch.cat([*told, one], 1))

    def _pooled(self, turn: Round, mixture: Mixture) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over rows by image: of what is seen, of labels, and of their weights."""
        weights = mixture.weights
        squares = weights.square()
        others = squares.sum(1, keepdim=True) - squares
        others = others + mixture.public.square().sum(1, keepdim=True)
        noise = self.law.power(weights[:, :1] + mixture.public[:, :1]).to(weights).view(-1, 1)
        weighed = Mixture(
            mixture.sources, weights / (noise + self.typical * others), mixture.public, mixture.n
        )
        labels = weights[:, :0] if turn.labels is None else turn.labels
        return (
            weighed.gather(self.of(turn.rows)),
            weighed.gather(labels),
            weighed.gather(torch.ones_like(weights[:, :1])),
        )


_FIELDS = ("sources", "weights", "public")


def _mixture(turn: Round, n: int) -> Mixture:
    assert turn.weights is not None
    assert turn.sources is not None
    return Mixture.of(turn.weights[None], turn.sources[None], n)


def _shares(labels: Tensor) -> Tensor:
    return labels / labels.sum(1, keepdim=True).clamp(min=1e-12)


def released(view: View, space: Subspace) -> list[Round]:
    """The owner's rounds, with what was granted of them."""

    def part(channel: Channel, turn: int) -> Tensor | None:
        told: Tensor | None = view.channels[channel][turn] if view.has(channel) else None
        return told

    return [
        Round(
            space.project(rows),
            part(Channel.LABELS, turn),
            part(Channel.WEIGHTS, turn),
            part(Channel.SOURCES, turn),
        )
        for turn, rows in enumerate(view.encodings)
    ]


def exercised(view: View, space: Subspace, encoded: Encoded) -> Round:
    """A round of the attacker's own, with no more than the release will tell."""
    labels, secrets = encoded.labels, encoded.secrets
    known = view.has(Channel.SOURCES)
    padded = pad(labels, (0, view.classes - labels.shape[1]))
    return Round(
        space.project(encoded.images.to(view.device)),
        padded.to(view.device) if view.has(Channel.LABELS) else None,
        secrets.weights.to(view.device) if known else None,
        secrets.sources.to(view.device) if known else None,
    )

"""The linear estimate of each image, and the planes that the network corrects it from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.posterior import Mixed
from harness_plugins.mixtures.rowwise import filtered, row_means

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.unet.knowledge import Knowledge
    from harness_plugins.attacks.unet.rows import Rows


@dataclass(frozen=True)
class Evidence:
    """Of each image: `mean` [n, c, h, w] of its class, `linear` the linear estimate about it.

    `planes` [n, p, h, w] and `vector` [n, v] are the network's inputs.
    """

    mean: Tensor
    linear: Tensor
    planes: Tensor
    vector: Tensor

    def __getitem__(self, index: Tensor | slice) -> Evidence:
        return Evidence(
            self.mean[index], self.linear[index], self.planes[index], self.vector[index]
        )


def inputs_of(channels: int, classes: int, labelled: bool) -> tuple[int, int]:
    """Number of planes and length of the vector."""
    return 4 * channels, 2 + (classes if labelled else 0)


def weigh(known: Knowledge, rounds: Iterable[Rows]) -> Evidence:
    """All that the rounds say of their images, in linear terms.

    Several rounds need sources: without them, which rows belong together is not known. With
    them, every row that holds an image speaks of it, first image of the mixture or not.
    """
    turns = list(rounds)
    weights = [known.weights(rows) for rows in turns]
    if turns[0].sources is None:
        said = _alone(known, turns[0], weights[0])
    else:
        said = _together(known, turns, weights)
    told = [
        torch.cat([w[:, :1], *_labels(rows)], 1) for rows, w in zip(turns, weights, strict=True)
    ]
    vector = torch.cat([torch.stack(told).mean(0), said.certainty], 1)
    recover, mean = known.subspace.recover, known.subspace.recover(said.centres)
    linear = recover(said.estimate) - mean
    magnitude = sum(_magnitude(rows.values) for rows in turns) / len(turns)
    matched, magnitude = recover(said.matched), torch.as_tensor(magnitude).view_as(mean)
    return Evidence(mean, linear, torch.cat([linear, matched, magnitude, mean], 1), vector)


def _labels(rows: Rows) -> list[Tensor]:
    return [] if rows.labels is None else [rows.labels]


def _magnitude(values: Tensor) -> Tensor:
    """|x~|, each row to unit energy a value: what is left where signs are hidden."""
    size = values.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)
    return values.abs() / size


@dataclass(frozen=True)
class _Said:
    """`centres`, `estimate` and `matched` filter [n, d], and log precision `certainty` [n, 1]."""

    centres: Tensor
    estimate: Tensor
    matched: Tensor
    certainty: Tensor


def _said(known: Knowledge, centres: Tensor, estimate: Tensor, raw: Tensor, power: Tensor) -> _Said:
    """`raw` [n, d] is an unbiased estimate of x - centres with noise `power` [n, 1] a value."""
    typical = known.prior.total / known.prior.mean.numel()
    matched = raw * (1 + power / typical).rsqrt()
    return _Said(centres, estimate, matched, power.clamp(1e-9, 1e12).log().neg() / 4)


def _together(known: Knowledge, turns: list[Rows], weights: list[Tensor]) -> _Said:
    """From the joint posterior of all images of all rounds."""
    sources = torch.stack([_sources(rows) for rows in turns])
    k = sources.shape[2]
    filled = [w if w.shape[1] == k else _spread(w, k) for w in weights]
    mixture = Mixture.of(torch.stack(filled), sources, sources.shape[1])
    labels = [label for rows in turns for label in _labels(rows)]
    model = Mixed.of(known.prior, known.law, mixture, torch.cat(labels) if labels else None)
    rows = torch.cat([rows.values for rows in turns])
    noise = model.noise.to(rows).view(-1, 1)
    pull = model.mixture.gather((rows - model.means()) / noise)
    precision = _precision(model, noise)
    return _said(known, model.centres, model.estimate(rows), pull / precision, 1 / precision)


def _precision(model: Mixed, noise: Tensor) -> Tensor:
    """[n, 1] sum over the rows that hold an image of its squared weight over their noise."""
    values = model.mixture.weights.square() / noise
    total = values.new_zeros(model.mixture.n)
    total.index_add_(0, model.mixture.sources.flatten(), values.flatten())
    return total.view(-1, 1).clamp(min=1e-12)


def _sources(rows: Rows) -> Tensor:
    if rows.sources is None:
        raise ValueError("rounds with and without sources")
    return rows.sources


def _spread(weights: Tensor, k: int) -> Tensor:
    """[n, k] of [n, 2]: what the own image leaves is shared by the others."""
    if k == 1:
        return weights[:, :1]
    others = weights[:, 1:] / (k - 1)
    return torch.cat([weights[:, :1], others.expand(-1, k - 1)], 1)


def _alone(known: Knowledge, rows: Rows, weights: Tensor) -> _Said:
    """From each row by itself."""
    law, labels = known.law, rows.labels
    estimate, _ = filtered(known.prior, law, rows.values, weights, labels)
    centres, offsets = row_means(known.prior, rows.values, weights, labels)
    own = (weights[:, :1] * law.gain).clamp(min=1e-6)
    typical = known.prior.total / known.prior.mean.numel()
    others = pad(weights, (0, 1))[:, 1:].square().sum(1, keepdim=True) * typical
    power = (others + law.power(weights).to(own).view(-1, 1)) / own.square()
    return _said(known, centres, estimate, (rows.values - law.gain * offsets) / own, power)

"""The linear estimate of each image, and the planes that the network corrects it from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.mixture import Mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.unet.prior import Prior
    from harness_plugins.attacks.unet.rows import Rows

_ITERATIONS = 32
# Variance a pixel of what no model explains: keeps noise-free systems solvable in float32.
_NOISE_FLOOR = 1e-3


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


def weigh(prior: Prior, rounds: Iterable[Rows]) -> Evidence:
    """All that the rounds say of their images, in linear terms.

    Several rounds need sources: without them, which rows belong together is not known.
    """
    told = _Told(prior)
    for rows in rounds:
        told.add(rows)
    return told.evidence()


class _Told:
    """What the rounds so far have told; only sums are kept."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self.count = 0
        self.system = _System(prior)
        self.own_class: Tensor | float = 0.0
        self.magnitude: Tensor | float = 0.0
        self.vector: Tensor | float = 0.0
        self.shape: torch.Size = torch.Size()

    def add(self, rows: Rows) -> None:
        weight = self.prior.weight(rows)
        size = rows.images.flatten(1).square().mean(1).sqrt().clamp(min=1e-12)
        labels = [] if rows.labels is None else [rows.labels]
        self.shape = rows.images.shape[1:]
        self.count += 1
        self.own_class = self.own_class + (self.prior.own_class(rows) + 1e-9).log()
        self.magnitude = self.magnitude + rows.images.abs() / size.view(-1, 1, 1, 1)
        self.vector = self.vector + torch.cat([weight.view(-1, 1), *labels], 1)
        self.system.add(rows, weight)

    def evidence(self) -> Evidence:
        own = torch.as_tensor(self.own_class).softmax(1)
        mean = (own @ self.prior.means.flatten(1)).view(-1, *self.shape)
        linear, matched, precision = self.system.solve()
        matched = matched * (1 + 1 / precision.view(-1, 1)).rsqrt()
        linear, matched = linear.view_as(mean), matched.view_as(mean)
        magnitude = torch.as_tensor(self.magnitude) / self.count
        told = torch.as_tensor(self.vector) / self.count
        planes = torch.cat([linear, matched, magnitude, mean], 1)
        vector = torch.cat([told, precision.log().div(4).view(-1, 1)], 1)
        return Evidence(mean, linear, planes, vector)


class _System:
    """Normal equations of the Gaussian model, a column for each principal component.

    (WᵀN⁻¹W + 1/λ) x = WᵀN⁻¹ y, where sources tell W; else W is the diagonal of own weights,
    and the other images of a mixture are noise with the images' own spectrum.
    """

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        d = prior.basis.shape[0]
        self.variances = torch.cat([prior.variances, prior.rest.expand(d)])
        self.gram: Tensor | None = None
        self.pull: Tensor | None = None
        self.alone: tuple[Tensor, Tensor, Tensor] | None = None

    def add(self, rows: Rows, weight: Tensor) -> None:
        """One round, whose own images have `weight` [n]."""
        noise = ((1 - weight) * self.prior.noise).square() + _NOISE_FLOOR
        columns = self._columns(_centred(self.prior, rows, weight))
        if rows.sources is None:
            self.alone = self._solve_alone(columns, weight, _others(rows, weight), noise)
            return
        root = noise.rsqrt().view(-1, 1)
        weights = _all_weights(rows, rows.sources, weight)
        mixture = Mixture.of((weights * root)[None], rows.sources[None], len(weight))
        pull, gram = mixture.gather(columns * root), mixture.gram()
        self.pull = pull if self.pull is None else self.pull.add_(pull)
        self.gram = gram if self.gram is None else (self.gram + gram).coalesce()

    def solve(self) -> tuple[Tensor, Tensor, Tensor]:
        """Linear estimate [n, d], matched filter [n, d], and the precision [n] of the latter."""
        if self.gram is None or self.pull is None:
            if self.alone is None:
                raise ValueError("no round was added")
            return self.alone
        precision = _diagonal(self.gram)
        solved = _conjugate_gradients(self.gram, precision, self.variances, self.pull)
        matched = self._pixels(self.pull) / precision.view(-1, 1)
        return self._pixels(solved), matched, precision

    def _solve_alone(
        self, columns: Tensor, weight: Tensor, others: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gain w λ / ((w² + o²) λ + N), o² the sum of the other images' squared weights."""
        own = weight.view(-1, 1)
        power = (own.square() + others.view(-1, 1)) * self.variances + noise.view(-1, 1)
        d, q = self.prior.basis.shape
        typical = (self.prior.variances.sum() + self.prior.rest * (d - q)) / d
        precision = weight.square() / (others * typical + noise)
        linear = self._pixels(columns * own * self.variances / power)
        return linear, self._pixels(columns) / own, precision

    def _columns(self, rows: Tensor) -> Tensor:
        """[n, q + d]: coordinates on the basis, then what is outside it."""
        inside = rows @ self.prior.basis
        return torch.cat([inside, torch.addmm(rows, inside, self.prior.basis.T, alpha=-1)], 1)

    def _pixels(self, columns: Tensor) -> Tensor:
        """[n, d] of columns."""
        q = self.prior.basis.shape[1]
        return torch.addmm(columns[:, q:], columns[:, :q], self.prior.basis.T)


def _centred(prior: Prior, rows: Rows, weight: Tensor) -> Tensor:
    """Rows [n, d] less the means of what is mixed in them: the soft label says of which."""
    means = prior.means.flatten(1)
    if rows.labels is not None:
        return rows.images.flatten(1) - rows.labels @ means
    total = torch.ones_like(weight) if rows.weights is None else rows.weights.sum(1)
    return rows.images.flatten(1) - total.view(-1, 1) * means.mean(0)


def _others(rows: Rows, weight: Tensor) -> Tensor:
    """[n] sum of the squared weights of all but a row's own image."""
    return (1 - weight).square() if rows.weights is None else rows.weights[:, 1:].square().sum(1)


def _all_weights(rows: Rows, sources: Tensor, weight: Tensor) -> Tensor:
    """[n, k]; where they are not granted, the others share what the own image leaves."""
    if rows.weights is not None:
        return rows.weights
    own = weight.view(-1, 1)
    others = sources.shape[1] - 1
    return torch.cat([own, ((1 - own) / max(1, others)).expand(-1, others)], 1)


def _diagonal(gram: Tensor) -> Tensor:
    """[n] of a coalesced sparse [n, n], at least a little."""
    first, second = gram.indices()
    on = first == second
    diagonal = gram.values().new_zeros(gram.shape[0])
    diagonal[first[on]] = gram.values()[on]
    return diagonal.clamp(min=1e-9)


def _conjugate_gradients(gram: Tensor, diagonal: Tensor, variances: Tensor, pull: Tensor) -> Tensor:
    """[n, columns]: each column is a system of its own, (G + 1/λ) x = pull."""
    shift = variances.reciprocal()
    ease = (diagonal.view(-1, 1) + shift).reciprocal()
    x = torch.zeros_like(pull)
    left = pull.clone()
    step = ease * left
    energy = (left * step).sum(0)
    for _ in range(_ITERATIONS):
        image = torch.sparse.mm(gram, step).addcmul_(step, shift)
        length = energy / (step * image).sum(0).clamp(min=1e-30)
        x.addcmul_(step, length)
        left.addcmul_(image, length, value=-1)
        eased = ease * left
        new = (left * eased).sum(0)
        step = eased.addcmul_(step, new / energy.clamp(min=1e-30))
        energy = new
    return x

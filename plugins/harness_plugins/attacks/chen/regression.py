"""Images from absolute values of known mixtures: phase retrieval, value by value.

Each value p has n unknowns x_p and m equations |W x_p| = y_p. Squares are linear in the products
of pairs of unknowns, y^2 = sum w_a^2 x_a^2 + 2 sum w_a w_b x_a x_b: the leading eigenvector of
those products is the start, alternating signs and least squares do the rest. What is found is x_p
or -x_p, for all images together; where something known is mixed in besides, x_p itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness.api import Stream
    from harness_plugins.clusters.membership import Membership

_NUMBERS = 2**24  # in the matrices of products, at a time
_POWERS = 30
_TURNS = 20
_RIDGE = 1e-4  # of an image's mean weight
_SOFT = (1.0, 0.03)  # deviations that mixtures are allowed, of their size, in a new start
_SOLVED = 1e-2  # relative error of a value that needs no other start


@dataclass(frozen=True)
class Regression:
    """Equations of `found`, each counted by its `trust` [m, 1], ready to be solved.

    `known` [m, d] is in the mixtures besides the images, None where nothing is.
    """

    mixed: Tensor
    inverse: Tensor
    found: Membership
    known: Tensor | None = None

    @classmethod
    def of(
        cls, found: Membership, known: Tensor | None = None, trust: Tensor | None = None
    ) -> Regression:
        """Of memberships and weights; all rows alike without `trust`."""
        mixed = found.dense()
        counted = mixed if trust is None else mixed * trust
        gram = counted.T @ mixed
        level = gram.diagonal().mean().clamp(min=1e-12)
        gram += torch.diag((_RIDGE * level).expand(len(gram)))
        return cls(mixed, torch.linalg.solve(gram, counted.T), found, known)

    def mixtures(self, images: Tensor) -> Tensor:
        """[m, d] of images [n, d]."""
        mixed = self.mixed @ images
        return mixed if self.known is None else mixed.add_(self.known)

    def signed(self, rows: Tensor) -> Tensor:
        """[n, d]: plain least squares of mixtures [m, d] whose signs are known."""
        return self.inverse @ (rows if self.known is None else rows - self.known)

    def of_values(self, values: Tensor) -> Regression:
        """The same for some of the d values alone."""
        return self if self.known is None else replace(self, known=self.known[:, values])

    def improved(self, seen: Tensor, images: Tensor, turns: int = _TURNS) -> Tensor:
        """Images [n, d] after so many turns of signs and least squares, or when signs stay."""
        signs = self.mixtures(images).sign()
        for _ in range(turns):
            images = self.signed(seen * signs)
            before, signs = signs, self.mixtures(images).sign()
            if torch.equal(before, signs):
                break
        return images

    def errors(self, seen: Tensor, images: Tensor) -> Tensor:
        """[d] relative error of the absolute values that images explain, value by value."""
        left = (self.mixtures(images).abs_() - seen).square_().sum(0)
        return (left / seen.square().sum(0).clamp(min=1e-12)).sqrt()

    def solved(self, seen: Tensor, starts: int, rng: Stream) -> Tensor:
        """Images [n, d] of absolute values [m, d], up to a sign for each of the d values.

        What is known beside the images is a start by itself.
        """
        if self.known is None:
            images = self.improved(seen, spectral_start(self.found, seen))
        else:
            images = self._begun(seen, seen.new_zeros(self.found.n, seen.shape[1]))
        return self.retried(seen, images, starts, rng)

    def retried(self, seen: Tensor, images: Tensor, starts: int, rng: Stream) -> Tensor:
        """Images [n, d] with values that they left unexplained begun anew at random.

        So many times at the most; the best answer stays.
        """
        images, errors = images.clone(), self.errors(seen, images)
        for start in range(starts):
            waiting = (errors > max(_SOLVED, 2 * float(errors.median()))).nonzero().squeeze(1)
            if not len(waiting):
                break
            part, some = seen[:, waiting].contiguous(), self.of_values(waiting)
            images_at_random = rng.stream(start=start).normal(self.found.n, len(waiting)).to(seen)
            tried = some._begun(part, images_at_random * _size(part))
            found = some.errors(part, tried)
            better = found < errors[waiting]
            images[:, waiting[better]] = tried[:, better]
            errors[waiting[better]] = found[better]
        return images

    def _begun(self, seen: Tensor, images: Tensor) -> Tensor:
        """From images [n, d] that say little, with signs unsure at first and ever surer."""
        size = _size(seen)
        first, last = _SOFT
        for turn in range(_TURNS):
            allowed = size * first * (last / first) ** (turn / (_TURNS - 1))
            images = self.signed(seen * (seen * self.mixtures(images) / allowed**2).tanh())
        return self.improved(seen, images)


def _size(seen: Tensor) -> Tensor:
    """[d] of a mixture, value by value."""
    return seen.square().mean(0).sqrt().clamp(min=1e-12)


def spectral_start(found: Membership, seen: Tensor) -> Tensor:
    """[n, d] up to a sign each: leading eigenvectors of the products of pairs of images.

    Where no two images meet, each has signs of its own, and absolute values are all there is.
    """
    squares = seen.square()
    weights = found.dense().square()
    normal = weights.T @ weights
    level = normal.diagonal().mean().clamp(min=1e-12)
    normal += torch.diag((_RIDGE * level).expand(len(normal)))
    own: Tensor = torch.linalg.solve(normal, weights.T @ squares).clamp(min=0)
    sums = _pair_sums(found)
    if not len(sums.names):
        return own.sqrt()
    beyond = squares - weights @ own
    step = max(1, _NUMBERS // found.n**2)
    parts = [
        _leading(sums, one, two)
        for one, two in zip(beyond.split(step, 1), own.split(step, 1), strict=True)
    ]
    return torch.cat(parts, 1)


@dataclass(frozen=True)
class _Sums:
    """Adds up what encodings say of pairs of images: pair `names` [e], of `rows` [e]."""

    names: Tensor
    rows: Tensor
    weights: Tensor
    squares: Tensor
    n: int

    def products(self, beyond: Tensor) -> Tensor:
        """[d, n, n] products of pairs, from squares less the images' own, [m, d]."""
        total = beyond.new_zeros(self.n**2, beyond.shape[1])
        total.index_add_(0, self.names, beyond[self.rows] * self.weights)
        total /= self.squares
        one_way = total.T.view(-1, self.n, self.n)
        return one_way + one_way.transpose(1, 2)


def _pair_sums(found: Membership) -> _Sums:
    names, rows, weights = (torch.cat(part) for part in zip(*_pairs(found), strict=True))
    squares = weights.new_full((found.n**2,), _RIDGE)
    squares.index_add_(0, names, 2 * weights.square())
    return _Sums(names, rows, weights.view(-1, 1), squares.view(-1, 1), found.n)


def _pairs(found: Membership) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each two slots: the pairs' names, their rows, and the products of weights."""
    slots = found.clusters.shape[1]
    none = found.clusters.new_zeros(0)
    yield none, none, found.weights.new_zeros(0)
    for one in range(slots):
        for two in range(one + 1, slots):
            ends = found.clusters[:, [one, two]]
            rows = (ends >= 0).all(1).nonzero().squeeze(1)
            low, high = ends[rows].amin(1), ends[rows].amax(1)
            weights = found.weights[rows, one] * found.weights[rows, two]
            yield low * found.n + high, rows, weights


def _leading(sums: _Sums, beyond: Tensor, own: Tensor) -> Tensor:
    """[n, d] of squares [m, d] beyond the images' `own` [n, d]."""
    products = sums.products(beyond)
    products.diagonal(dim1=1, dim2=2).copy_(own.T)
    vectors = own.T.sqrt().unsqueeze(2)
    for _ in range(_POWERS):
        vectors = torch.nn.functional.normalize(products @ vectors, dim=1)
    return vectors.squeeze(2).T * own.sum(0).sqrt()

"""How far gradients are from those that were released, for many batches at once.

Written with their own derivatives: gradients of a network are its largest tensors here, and each
operation on them that autograd would record costs as much as a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness_plugins.attacks.gradmatch.gradients import (
        BatchedGradients,
        Moments,
        SimulatedUpdates,
    )

SMALL, FEW = 1e-2, 1e-3
"""Entries below this share of the deviation are small; a share of them below that is few."""
TINY = 1e-30
"""Squared norm of a gradient that counts as zero."""


@dataclass(frozen=True)
class Observed:
    """Released gradients by name [P, *shape]; `kept` says which entries count, None for all."""

    gradients: Mapping[str, Tensor]
    kept: Mapping[str, Tensor] | None = None

    @classmethod
    def of(cls, gradients: Mapping[str, Tensor], *, adaptive: bool, told: bool = False) -> Observed:
        """`adaptive`: entries that were pruned are zero, and say nothing.

        That they were is `told`, or seen.
        """
        if not adaptive or not (told or pruned(gradients)):
            return cls(gradients)
        return cls(gradients, {name: (g != 0).to(g.dtype) for name, g in gradients.items()})

    def __getitem__(self, rows: Tensor) -> Observed:
        """Those of some batches."""
        kept = self.kept
        return Observed(
            {name: g[rows] for name, g in self.gradients.items()},
            None if kept is None else {name: k[rows] for name, k in kept.items()},
        )

    def distance(self, kind: Literal["cosine", "l2"], gradients: Mapping[str, Tensor]) -> Tensor:
        """[P]: 1 − cos of the angle over all layers together, or the squared distance."""
        names = list(self.gradients)
        observed = [self.gradients[name] for name in names]
        kept = [None] * len(names) if self.kept is None else [self.kept[name] for name in names]
        own = [gradients[name] for name in names]
        if kind == "cosine":
            cosine: Tensor = _Cosine.apply(observed, self.squared_norm, kept, *own)
            return cosine
        squared: Tensor = _Squared.apply(observed, kept, *own)
        return squared

    @property
    def values(self) -> int:
        """Numbers in the gradient of one batch."""
        return sum(g[0].numel() for g in self.gradients.values())

    @cached_property
    def squared_norm(self) -> Tensor:
        """[P] over all layers."""
        return sum(_dot(g, g) for g in self.gradients.values()).clamp(min=TINY)  # type: ignore[union-attr]


class Distance(Protocol):
    """How far the gradients of P batches are from those observed."""

    @property
    def observed(self) -> Observed:
        """What was released."""
        ...

    @property
    def held(self) -> int:
        """Numbers of one batch's gradient that are in memory."""
        ...

    def __getitem__(self, rows: Tensor) -> Distance: ...

    def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Moments]:
        """[P] at inputs [P, b, *shape] and soft labels [P, b, classes].

        And the moments that BatchNorm layers saw, where somebody watches.
        """
        ...


@dataclass(frozen=True)
class FormedDistance:
    """The distance of gradients that are formed."""

    gradients: BatchedGradients | SimulatedUpdates
    observed: Observed
    kind: Literal["cosine", "l2"]

    @property
    def held(self) -> int:
        """All numbers of it, at every step."""
        return self.observed.values * self.gradients.steps

    def __getitem__(self, rows: Tensor) -> FormedDistance:
        """That of some batches."""
        return replace(self, observed=self.observed[rows])

    def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Moments]:
        """[P], and the moments that were watched."""
        taken = self.gradients(inputs, labels)
        return self.observed.distance(self.kind, taken.gradients), taken.moments


def pruned(gradients: Mapping[str, Tensor]) -> bool:
    """Whether small entries are missing: units that did not fire leave zeros, but small ones too.

    Of what is not zero, a hundredth or so lies below a hundredth of the tensor's deviation,
    unless the smallest were taken away.
    """
    small = total = zeros = 0
    for gradient in gradients.values():
        there = gradient != 0
        count = int(there.sum())
        zeros += gradient.numel() - count
        deviation = gradient.square().sum().div(max(1, count)).sqrt()
        small += int((there & (gradient.abs() < SMALL * deviation)).sum())
        total += count
    return zeros > 0 and small < FEW * total


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """[P] inner products, without a product of the tensors in memory."""
    return torch.bmm(a.reshape(len(a), 1, -1), b.reshape(len(b), -1, 1)).view(len(a))


def _by_batch(factor: Tensor, like: Tensor) -> Tensor:
    return factor.view(-1, *(1,) * (like.ndim - 1))


def _masked(gradients: tuple[Tensor, ...], kept: list[Any]) -> list[Tensor]:
    return [g if k is None else g * k for g, k in zip(gradients, kept, strict=True)]


class _Cosine(torch.autograd.Function):
    """1 − ⟨g, o⟩ / (‖g‖ ‖o‖); 1 where a norm is zero."""

    @staticmethod
    def forward(
        ctx: Any, observed: list[Tensor], norm: Tensor, kept: list[Any], *gradients: Tensor
    ) -> Tensor:
        own = _masked(gradients, kept)
        dot = sum(_dot(g, o) for g, o in zip(own, observed, strict=True))
        square = sum(_dot(g, g) for g in own).clamp(min=TINY)  # type: ignore[union-attr]
        scale = square.rsqrt() * norm.rsqrt()
        ctx.observed, ctx.kept = observed, kept
        ctx.save_for_backward(dot, square, scale, *gradients)
        return 1 - dot * scale

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Any, ...]:
        dot, square, scale, *gradients = ctx.saved_tensors
        to_observed, to_own = -up * scale, up * scale * dot / square
        pulls = [
            (own * _by_batch(to_own, own)).addcmul_(o, _by_batch(to_observed, o))
            for own, o in zip(_masked(tuple(gradients), ctx.kept), ctx.observed, strict=True)
        ]
        return (None, None, None, *pulls)


class _Squared(torch.autograd.Function):
    """Σ (g − o)²."""

    @staticmethod
    def forward(ctx: Any, observed: list[Tensor], kept: list[Any], *gradients: Tensor) -> Tensor:
        apart = [g - o for g, o in zip(_masked(gradients, kept), observed, strict=True)]
        ctx.save_for_backward(*apart)
        return sum(_dot(each, each) for each in apart)  # type: ignore[return-value]

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Any, ...]:
        return (None, None, *(2 * each * _by_batch(up, each) for each in ctx.saved_tensors))

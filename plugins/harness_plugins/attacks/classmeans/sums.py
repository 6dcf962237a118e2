"""All that least squares needs to know of a release, summed in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.classmeans.exercise import mean_square

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.classmeans.exercise import Law

_NUMBERS = 1 << 23


@dataclass
class Sums:
    """Sums over rows x~ [d values] with soft labels, and noise N > 0 of each row.

    y [classes] is the label times the share of a mixture that a row holds. `gram` [classes,
    classes] is the sum of y yᵀ/N, `pull` [classes, *shape] of y x~/N, `share` [classes] of
    y/N times what is held, `masses` [classes] of labels; `energy` of ‖x~‖²/(d N), `own` of
    ‖y‖²/N, `foreign` of Σ_c y_c² (‖y‖² − y_c²)/N²: what images add to other classes' means.
    """

    gram: Tensor
    pull: Tensor
    share: Tensor
    masses: Tensor
    energy: Tensor
    own: Tensor
    foreign: Tensor
    count: int = 0

    @classmethod
    def none(cls, classes: int, encodings: Tensor) -> Sums:
        """Of no rows, for encodings [rounds, n, *shape]."""
        zero = encodings.new_zeros
        gram, pull = zero(classes, classes), zero(classes, *encodings.shape[2:])
        return cls(gram, pull, zero(classes), zero(classes), zero(()), zero(()), zero(()))

    def add(self, rows: Tensor, labels: Tensor, weights: Tensor | None, law: Law) -> None:
        """Encodings [n, *shape], labels [n, classes], weights [n, k] if granted; never copied."""
        size = max(16, _NUMBERS // max(1, rows[0].numel()))
        for at in torch.split(torch.arange(len(rows)), size):
            part = slice(int(at[0]), int(at[-1]) + 1)
            known = None if weights is None else weights[part]
            self._add(rows[part].flatten(1), labels[part], known, law)

    def _add(self, rows: Tensor, labels: Tensor, weights: Tensor | None, law: Law) -> None:
        power = mean_square(rows)
        held = power.new_full((len(rows), 1), law.held)
        tells = power
        if weights is not None:
            held, tells = weights.sum(1, keepdim=True), (1 - weights[:, 0]).square()
        noise = law.noise(tells)
        y = labels * held
        self._add_labels(labels, y, held, noise)
        self.pull.view(len(self.pull), -1).addmm_((y / noise.view(-1, 1)).T, rows)
        self.energy += (power / noise).sum()

    def _add_labels(self, labels: Tensor, y: Tensor, held: Tensor, noise: Tensor) -> None:
        squares = y.square()
        own = squares.sum(1)
        scaled = y / noise.view(-1, 1)
        self.gram.addmm_(scaled.T, y)
        self.share += (scaled * held).sum(0)
        self.masses += labels.sum(0)
        self.own += (own / noise).sum()
        self.foreign += ((squares * (own.view(-1, 1) - squares)).sum(1) / noise.square()).sum()
        self.count += len(labels)

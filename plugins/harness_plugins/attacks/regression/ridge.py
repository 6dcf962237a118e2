"""Ridge regression from sums, with inputs that are not penalised, and a penalty found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from harness_plugins.attacks.regression.inputs import Inputs

# Of the mean variance of what is penalised: from next to nothing to the class means.
_PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Map:
    """x^ = features @ `seen` [q, d] + known @ `told` [e, d]."""

    seen: Tensor
    told: Tensor
    penalty: float

    def of(self, inputs: Inputs) -> Tensor:
        """[n, d]."""
        return inputs.features @ self.seen + inputs.known @ self.told


class Sums:
    """Of products of inputs with each other and with images."""

    def __init__(self) -> None:
        self.gram: Tensor | None = None
        self.pull: Tensor | None = None
        self.features = 0

    def add(self, inputs: Inputs, images: Tensor) -> None:
        """Inputs of images [n, d]."""
        both = torch.cat([inputs.features, inputs.known], 1)
        gram, pull = (both.T @ both).double(), (both.T @ images).double()
        self.gram = gram if self.gram is None else self.gram.add_(gram)
        self.pull = pull if self.pull is None else self.pull.add_(pull)
        self.features = inputs.features.shape[1]

    def maps(self) -> Iterator[Map]:
        """One for each penalty, least first. What is known comes first, features explain the rest.

        Known inputs sum to a constant and so are not independent: hence the pseudo-inverse.
        """
        assert self.gram is not None
        assert self.pull is not None
        q = self.features
        cross, known = self.gram[q:, :q], torch.linalg.pinv(self.gram[q:, q:], hermitian=True)
        left = self.gram[:q, :q] - cross.T @ known @ cross
        values, vectors = torch.linalg.eigh(left)
        values = values.clamp(min=0)
        aim = vectors.T @ (self.pull[:q] - cross.T @ (known @ self.pull[q:]))
        for penalty in _PENALTIES:
            ridge = penalty * values.mean().clamp(min=1e-30)
            seen = vectors @ (aim / (values + ridge).view(-1, 1))
            told = known @ (self.pull[q:] - cross @ seen)
            yield Map(seen.float(), told.float(), penalty)


def best_of(sums: Sums, error: Callable[[Map], float]) -> tuple[Map, float]:
    """The map of the least error, and that error; none better is sought once it rises."""
    best: tuple[Map, float] | None = None
    for found in sums.maps():
        its = error(found)
        if best is not None and its > best[1]:
            break
        best = found, its
    assert best is not None
    return best

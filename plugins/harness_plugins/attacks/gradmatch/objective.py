"""What a reconstruction should be: near in gradients, smooth, and near in BatchNorm statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.gradmatch.distances import Distance
    from harness_plugins.attacks.gradmatch.gradients import Moments


@dataclass(frozen=True)
class Objective:
    """Loss of P problems: distance + tv·TV + bn·(distance of statistics).

    `moments` [P, channels] (or [channels]) by layer are what BatchNorm layers should see.
    `folded`: smoothness is asked of absolute values, because signs are random.
    """

    distance: Distance
    tv: float
    bn: float
    moments: Moments
    folded: bool = False

    def __getitem__(self, rows: Tensor) -> Objective:
        """That of some problems."""
        moments = {
            name: (mean[rows], var[rows]) if mean.ndim > 1 else (mean, var)
            for name, (mean, var) in self.moments.items()
        }
        return replace(self, distance=self.distance[rows], moments=moments)

    def __call__(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """[P] for inputs [P, b, *shape] and soft labels [P, b, classes]."""
        loss, found = self.distance(inputs, labels)
        if self.tv and inputs.ndim == 5:
            loss = loss + self.tv * total_variation(inputs.abs() if self.folded else inputs)
        if self.bn and self.moments:
            loss = loss + self.bn * _apart(found, self.moments)
        return loss


def total_variation(images: Tensor) -> Tensor:
    """[P] mean absolute difference of horizontal neighbours plus that of vertical ones.

    Images one pixel wide or high have no such neighbours, and nothing is added.
    """
    across = images[..., 1:] - images[..., :-1]
    down = images[..., 1:, :] - images[..., :-1, :]
    sums = [each.abs().flatten(1).sum(1) / max(1, each[0].numel()) for each in (across, down)]
    return sums[0] + sums[1]


def _apart(found: Moments, wanted: Moments) -> Tensor:
    """[P] Σ over layers ‖mean − mean'‖ + ‖var − var'‖."""
    gaps = [
        (mine - given).norm(dim=-1)
        for name in wanted
        for mine, given in zip(found[name], wanted[name], strict=True)
    ]
    total: Tensor = sum(gaps)  # type: ignore[assignment]
    return total

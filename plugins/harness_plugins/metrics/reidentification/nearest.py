"""Nearest neighbours by one matrix product."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import Metric

ROUNDING = 4e-6
"""Relative error of a float32 product of a few thousand terms: closer than that is a tie."""


class Reidentification(Metric):
    """1 where the true image is strictly the nearest to its reconstruction, 0 elsewhere."""

    def chance(self, count: int) -> float:
        """How often a guess among `count` targets and the decoys is right."""
        return 1 / (count + len(self.scene.decoys))

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] of 0 and 1. A tie counts as wrong: the attacker cannot tell which it is."""
        gallery = torch.cat([truth, self.scene.decoys.to(truth)]).flatten(1)
        centre = gallery.mean(0)  # distances stay, rounding shrinks
        gallery = gallery - centre
        energy = gallery.square().sum(1)
        closeness = (images.flatten(1) - centre) @ gallery.T - energy / 2
        own = closeness.diagonal().clone()
        closeness.diagonal().fill_(-torch.inf)
        margin = own - closeness.amax(1)
        return (margin > ROUNDING * energy.max()).double().cpu()

"""`reidentification`: whether the true image is the one nearest to its reconstruction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import Metric, MetricSpec, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 4e-6
"""Relative error of a float32 product of a few thousand terms: closer than that is a tie."""


class Reidentification(Metric):
    """1 where the true image is strictly the nearest to its reconstruction, 0 elsewhere."""

    def chance(self, count: int) -> float:
        """How often a guess among `count` targets and the decoys is right."""
        return 1 / (count + len(self.scene.decoys))

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] of 0 and 1. A tie counts as wrong: the attacker cannot tell which it is."""
        import torch

        gallery = torch.cat([truth, self.scene.decoys.to(truth)]).flatten(1)
        centre = gallery.mean(0)  # distances stay, rounding shrinks
        gallery = gallery - centre
        energy = gallery.square().sum(1)
        closeness = (images.flatten(1) - centre) @ gallery.T - energy / 2
        own = closeness.diagonal().clone()
        closeness.diagonal().fill_(-torch.inf)
        margin = own - closeness.amax(1)
        return (margin > ROUNDING * energy.max()).double().cpu()


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric."""
    return [
        MetricSpec(
            name="reidentification",
            version="1",
            summary="how often the image nearest to a reconstruction is the true one, among the "
            "private images and as many decoys",
            reference="nearest neighbour by mean squared error",
            factory="harness_plugins.metrics.reidentification:Reidentification",
            formula="1 where ‖x̂−x‖ < ‖x̂−x'‖ for every other private image or decoy x', else 0",
            leaks_more="higher",
            range=(0.0, 1.0),
            unit="proportion",
            of="anything",
        )
    ]

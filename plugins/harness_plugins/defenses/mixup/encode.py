"""Algorithm 1 of the InstaHide paper: mixup of k private images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import (
    Encoded,
    Law,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Stream,
)
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.mixing import draw_sources, draw_weights, mix_labels, mix_samples
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Mixup(PiecewiseDefense[MixupConfig]):
    """x~_i = Σ_j λ_ij x_π_j(i), labels mixed alike (algorithm 1, lines 9 and 10)."""

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """Of images of any shape. CellFailed where there are fewer than k images."""
        n, k = len(private), self.config.k
        sources = draw_sources(n, k, rng.stream(what="sources"))
        weights = draw_weights(n, k, rng.stream(what="weights"), max_weight=self.config.max_weight)
        hard = one_hot_labels(private, public)

        def rows(index: Tensor) -> Encoded:
            mixed, by = sources[index], weights[index]
            labels = mix_labels(hard, mixed, by)
            return Encoded(mix_samples(private, mixed, by), labels, Secrets(by, mixed))

        return Round(private.shape, rows)

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Nothing is added."""
        return Law("none")

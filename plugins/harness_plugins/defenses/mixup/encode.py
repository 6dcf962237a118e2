"""Algorithm 1 of the InstaHide paper: mixup of k private images."""

from __future__ import annotations

from harness.api import Encoded, EncodingDefense, Samples, Secrets, Stream
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.mixing import draw_sources, draw_weights, mix, mix_labels
from harness_plugins.soft_labels import one_hot_labels


class Mixup(EncodingDefense[MixupConfig]):
    """x~_i = Σ_j λ_ij x_π_j(i), labels mixed alike (algorithm 1, lines 9 and 10)."""

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """One round, of images of any shape. CellFailed where there are fewer than k images."""
        n, k = len(private), self.config.k
        sources = draw_sources(n, k, rng.stream(what="sources"))
        weights = draw_weights(n, k, rng.stream(what="weights"), max_weight=self.config.max_weight)
        labels = mix_labels(one_hot_labels(private, public), sources, weights)
        return Encoded(mix(private.images, sources, weights), labels, Secrets(weights, sources))

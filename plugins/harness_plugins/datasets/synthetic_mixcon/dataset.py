"""Drawing the points of MixCon, section 4.2."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from harness.api import AssetFolder, Collection, Dataset, Samples, Scale
from harness_plugins.datasets.synthetic_mixcon import SyntheticMixconConfig

D = 10
# The network is given the points as they are drawn, as in the paper.
SCALE = Scale(mean=(0.0,), std=(1.0,), low=None, high=None)
CLASSES = ("negative", "positive")


def points(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """`n` points [n, 10] in random order with true labels [n]; n // 2 of them positive."""
    labels = rng.permutation(np.arange(n) % 2)
    noise = rng.standard_normal((n, D), dtype=np.float32)
    return noise - (labels == 0)[:, None].astype(np.float32), labels


def flipped(labels: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """The labels [n] with round(share·n) of them, chosen at random, turned round."""
    wrong = rng.permutation(len(labels))[: round(share * len(labels))]
    turned = labels.copy()
    turned[wrong] = 1 - turned[wrong]
    return turned


class SyntheticMixcon(Dataset[SyntheticMixconConfig]):
    """`n_train` train and `n_test` test points [n, 1, 1, 10] float32, without bounds."""

    def load(self, assets: AssetFolder) -> Collection:
        """Both parts; labels are flipped in the train part only."""
        config = self.config
        train = self._part(config.n_train, 0, config.flip)
        return Collection(train, self._part(config.n_test, 1, 0.0), SCALE, CLASSES)

    def _part(self, n: int, part: int, flip: float) -> Samples:
        drawn, turned = (np.random.default_rng((self.config.seed, part, w)) for w in (0, 1))
        values, labels = points(n, drawn)
        return Samples(
            torch.from_numpy(values).view(n, 1, 1, D),
            torch.from_numpy(flipped(labels, flip, turned)),
        )

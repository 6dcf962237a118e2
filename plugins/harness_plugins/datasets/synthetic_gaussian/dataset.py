"""Drawing standard normal vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from harness.api import AssetFolder, Collection, Dataset, Samples, Scale
from harness_plugins.datasets.synthetic_gaussian import SyntheticGaussianConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALE = Scale(mean=(0.0,), std=(1.0,), low=None, high=None)


def plane(d: int) -> tuple[int, int]:
    """(height, width) with height·width = d, as near to a square as whole numbers allow."""
    height = next(h for h in range(math.isqrt(d), 0, -1) if d % h == 0)
    return height, d // height


class SyntheticGaussian(Dataset[SyntheticGaussianConfig]):
    """`n` train and `n_test` test vectors [n, 1, h, w] float32, h·w = d, without bounds."""

    def best_accuracy(self) -> float:
        """That of the nearest mean: x·u_y beats classes - 1 independent standard normals."""
        from scipy.integrate import quad
        from scipy.stats import norm

        others, apart = self.config.classes - 1, self.config.apart

        def won(t: float) -> float:
            return float(norm.pdf(t - apart) * norm.cdf(t) ** others)

        return float(quad(won, apart - 12, apart + 12)[0])

    def load(self, assets: AssetFolder) -> Collection:
        """Both parts, each from streams of its own: one's size does not change the other."""
        config = self.config
        train, test = self._part(config.n, 0), self._part(config.n_test, 1)
        return Collection(train, test, SCALE, tuple(str(i) for i in range(config.classes)))

    def _part(self, n: int, part: int) -> Samples:
        import torch

        config = self.config
        vectors, labels = (np.random.default_rng((config.seed, part, what)) for what in (0, 1))
        images = vectors.standard_normal((n, 1, *plane(config.d)), dtype=np.float32)
        drawn = labels.integers(config.classes, size=n)
        if config.apart:
            images += self._means()[drawn].reshape(images.shape)
        return Samples(torch.from_numpy(images), torch.from_numpy(drawn))

    def _means(self) -> NDArray[np.float32]:
        """[classes, d], orthogonal; from a stream of their own."""
        config = self.config
        drawn = np.random.default_rng((config.seed, 2)).standard_normal((config.d, config.classes))
        directions, _ = np.linalg.qr(drawn)
        return (config.apart * directions.T).astype(np.float32)

"""InstaHide's baseline of random noise (figure 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.api import Encoded, EncodingDefense, Samples, Secrets, Stream
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Numbers worked on at a time: in float64, with a few copies, 10 MB of scratch.
_BLOCK = 1 << 18


class Noise(EncodingDefense[NoiseConfig]):
    """x~_i = (1 - α) x_i + e_i, labels unchanged (InstaHide, section 5.2)."""

    def __init__(self, config: NoiseConfig) -> None:
        super().__init__(config)
        self._measured: tuple[Tensor, float] | None = None

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """One round: `scale` is resolved, weights [n, 1] are 1 - alpha, sources the rows."""
        n, scale = len(private), self._scale(private.images)
        weights = torch.full((n, 1), 1 - self.config.alpha)
        images = self._cover(private.images, float(weights[0]), scale, rng) if n else private.images
        secrets = Secrets(weights, torch.arange(n).view(n, 1))
        return Encoded(images, one_hot_labels(private, public), secrets, {"scale": scale})

    def _scale(self, images: Tensor) -> float:
        """Measured once for the rounds of one release: they bring the same tensor."""
        if self.config.scale is not None:
            return self.config.scale
        if self._measured is None or self._measured[0] is not images:
            self._measured = images, self.config.alpha * mean_absolute(images)
        return self._measured[1]

    def _cover(self, images: Tensor, share: float, scale: float, rng: Stream) -> Tensor:
        """[n, *shape] float32, in blocks; the sum is taken in float64 and rounded once."""
        covered = torch.empty(images.shape)
        blocks = zip(_blocks(covered), _blocks(images), strict=True)
        for target, block in blocks:
            total = block.cpu().numpy().astype(np.float64)
            total *= share
            total += self._noise(len(total), scale, rng)
            target.numpy()[:] = total
        return covered.to(images.device)

    def _noise(self, count: int, scale: float, rng: Stream) -> NDArray[np.float64]:
        """[count] float64: Laplace noise of a scale, or normal noise of the same energy.

        The Laplace law by inversion: -b sign(v) log(1 - |v|) of v uniform on (-1,1).
        """
        if self.config.kind == "gaussian":
            normal: NDArray[np.float64] = rng.normal(count).numpy().astype(np.float64)
            normal *= math.sqrt(2) * scale
            return normal
        v = 2 * rng.uniform(count).numpy() - 1
        size: NDArray[np.float64] = -scale * np.log1p(-np.minimum(np.abs(v), 1 - 2.0**-53))
        noise: NDArray[np.float64] = np.copysign(size, v)
        return noise


def mean_absolute(images: Tensor) -> float:
    """mean|x| over all numbers of images, n >= 1, in float64.

    NumPy sums in one thread: every round of a release, on any number of threads, gets one value.
    """
    sums = (float(np.abs(block.cpu().numpy()).sum(dtype=np.float64)) for block in _blocks(images))
    return math.fsum(sums) / images.numel()


def _blocks(images: Tensor) -> tuple[Tensor, ...]:
    """All numbers of images in turn, `_BLOCK` at a time."""
    return torch.split(images.reshape(-1), _BLOCK)

"""InstaHide's baseline of random noise (figure 4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

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
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.random_rows import RandomRows, spans
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

# Numbers worked on at a time: in float64, with a few copies, 10 MB of scratch.
_BLOCK = 1 << 18


class Noise(PiecewiseDefense[NoiseConfig]):
    """x~_i = (1 - α) x_i + e_i, labels unchanged (InstaHide, section 5.2)."""

    def __init__(self, config: NoiseConfig) -> None:
        super().__init__(config)
        self._measured: tuple[SamplesOnDemand, float] | None = None

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """`scale` is resolved; weights [b, 1] are 1 - alpha, sources the rows."""
        scale = self._scale(private)
        share = self._share
        noise, labels = self._noise(private, scale, rng), one_hot_labels(private, public)

        def rows(index: Tensor) -> Encoded:
            images = cover(private, index, share, noise)
            weights = torch.full((len(index), 1), share)
            return Encoded(images, labels[index], Secrets(weights, index.view(-1, 1)))

        return Round(private.shape, rows, {"scale": scale})

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Noise of deviation √2 b on every row; b is of the private images unless it is given."""
        given = self.config.scale
        deviation = math.sqrt(2) * float(resolved["scale"] if given is None else given)
        return Law(
            self.config.kind,
            deviation,
            exposure=(self._share / deviation) ** 2 if deviation else math.inf,
            calibrated=("scale",) if given is None else (),
        )

    @property
    def _share(self) -> float:
        """How much of an image stays, as the weights say it."""
        return float(np.float32(1 - self.config.alpha))

    def _scale(self, private: SamplesOnDemand) -> float:
        """Measured once for the rounds of one release: they bring the same samples."""
        if self.config.scale is not None:
            return self.config.scale
        if self._measured is None or self._measured[0] is not private:
            self._measured = private, self.config.alpha * mean_absolute(private)
        return self._measured[1]

    def _noise(self, private: SamplesOnDemand, scale: float, rng: Stream) -> RandomRows:
        """Rows of float64: Laplace noise of a scale, or normal noise of the same energy.

        Each block of rows has a stream of its own.
        """
        law = normal if self.config.kind == "gaussian" else laplace
        values = math.prod(private.shape)
        block = max(1, min(len(private), _BLOCK // values))
        return RandomRows(
            block, lambda number: lambda: law(rng.stream(block=number), scale, block, values)
        )


def normal(rng: Stream, scale: float, *shape: int) -> Tensor:
    """Normal noise as energetic as Laplace noise of this scale, float64."""
    return rng.normal(*shape).double().mul_(math.sqrt(2) * scale)


def laplace(rng: Stream, scale: float, *shape: int) -> Tensor:
    """By inversion: -b sign(v) log(1 - |v|) of v uniform on (-1,1), float64."""
    v = 2 * rng.uniform(*shape).numpy() - 1
    size = -scale * np.log1p(-np.minimum(np.abs(v), 1 - 2.0**-53))
    return torch.from_numpy(np.copysign(size, v))


def cover(private: SamplesOnDemand, index: Tensor, share: float, noise: RandomRows) -> Tensor:
    """[b, *shape] float32, in blocks; the sum is taken in float64 and rounded once."""
    covered = torch.empty(len(index), *private.shape)
    device = private[:0].images.device
    for block, make in noise.take(len(index)):
        total = private[index[block]].images.cpu().double().mul_(share)
        covered[block] = total + make().view(total.shape)
    return covered.to(device)


def mean_absolute(private: SamplesOnDemand) -> float:
    """mean|x| over all numbers of images, n >= 1, in float64.

    NumPy sums in one thread: every round of a release, on any number of threads, gets one value.
    """
    values = math.prod(private.shape)
    blocks = (private[span].images for span in spans(len(private), values, _BLOCK))
    sums = (float(np.abs(block.cpu().numpy()).sum(dtype=np.float64)) for block in blocks)
    return math.fsum(sums) / (len(private) * values)

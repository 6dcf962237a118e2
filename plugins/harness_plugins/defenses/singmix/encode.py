"""Algorithm 1 of the singularized-mixup paper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from harness.api import (
    CellFailed,
    Encoded,
    Law,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Stream,
    Table,
)
from harness_plugins.defenses.singmix import First, FixedPoints, SingmixConfig
from harness_plugins.defenses.singmix.calibration import measure_spread
from harness_plugins.defenses.singmix.covering import Covering
from harness_plugins.defenses.singmix.rows import at_resolution
from harness_plugins.mixing import mix_labels
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Singmix(PiecewiseDefense[SingmixConfig]):
    """x~_i = w_i x_i + (1 - w_i)(x_pi(i) + e_i), labels mixed alike (algorithm 1)."""

    def __init__(self, config: SingmixConfig) -> None:
        super().__init__(config)
        self._measured: tuple[SamplesOnDemand, float] | None = None

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """`radius` is resolved; sources are (i, pi(i)), fixed points included unless excluded."""
        n, resolution = len(private), self.config.resolution
        radius = self._radius(private, public)
        partners = draw_partners(n, rng, self.config.fixed_points)
        weights = draw_weights(n, self.config.alpha, rng, self.config.first)
        gaussian = self.config.noise == "gaussian"
        covering = Covering(partners, weights, radius, gaussian, resolution)
        shape = tuple(at_resolution(private[:1].images, resolution).shape[1:])
        noise, hard = covering.noise(shape, rng), one_hot_labels(private, public)

        def rows(index: Tensor) -> Encoded:
            sources, by = torch.stack([index, partners[index]], 1), weights[index]
            labels = mix_labels(hard, sources, by)
            return Encoded(covering.apply(private, index, noise), labels, Secrets(by, sources))

        return Round(shape, rows, {"radius": radius})

    def analyse(self, private: Samples, rng: Stream) -> tuple[Table, ...]:
        """The spread of the images, what each tau asks for, and theorem 4.1's T_i."""
        from harness_plugins.defenses.singmix.analysis import analyse

        return analyse(self.config, private, rng)

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Noise of norm r on the partner: at worst an image is its own one, at weight alpha.

        Else it is the first of one row, and seen at α / (1-α) of that noise, and the second of
        another, whatever the weights are there.
        """
        config, given = self.config, self.config.radius
        deviation = float(resolved["radius"] if given is None else given) / math.sqrt(values)
        least = 1 - config.alpha
        alone, mixed = 1 / least**2, (config.alpha / least) ** 2 + 1
        most = alone if config.fixed_points == "yes" else mixed
        measured = given is None and config.calibrate == "private"
        return Law(
            config.noise if deviation else "none",
            deviation,
            covers="others",
            altered="resized images" if config.resolution else "",
            exposure=most / deviation**2 if deviation else math.inf,
            calibrated=("radius",) if measured else (),
        )

    def _radius(self, private: SamplesOnDemand, public: Samples) -> float:
        """Measured once for the rounds of one release: they bring the same samples."""
        if self.config.radius is not None:
            return self.config.radius
        samples = private if self.config.calibrate == "private" else public
        if self._measured is None or self._measured[0] is not samples:
            self._measured = samples, self._calibrate(samples)
        return self._measured[1]

    def _calibrate(self, samples: SamplesOnDemand) -> float:
        """Theorem 4.2; a lone image has nobody to be told apart from, and gets no noise.

        CellFailed where public images are to set the radius and there are fewer than two.
        """
        if len(samples) < 2:
            if self.config.calibrate == "public":
                raise CellFailed("calibrate=public measures public images, and there are not two")
            return 0.0
        spread = measure_spread(samples, self.config.resolution)
        return spread.radius(self.config.tau, self.config.alpha)


def draw_partners(n: int, rng: Stream, fixed_points: FixedPoints = "yes") -> Tensor:
    """A uniform permutation of 0..n-1, [n] int64; uniform among those without fixed points if so.

    One in e of all permutations has none, so that a few draws find one. CellFailed where a lone
    image has nobody else.
    """
    drawn = rng.permutation(n)
    if fixed_points == "yes":
        return drawn
    if n < 2:
        raise CellFailed("fixed_points=no needs a second image to be the partner of the first")
    while bool((drawn == torch.arange(n)).any()):
        drawn = rng.permutation(n)
    return drawn


def draw_weights(n: int, alpha: float, rng: Stream, first: First = "any") -> Tensor:
    """[n, 2] float32 that sum to exactly 1: two uniforms, normalised, redrawn above `alpha`.

    Drawn straight from the law that redrawing leaves. The smaller of two uniforms over the
    larger is itself uniform on [0,1]; the larger weight is 1 / (1 + ratio), and it is at most
    alpha where the ratio is at least 1/alpha - 1. Which weight comes first is a fair coin, or
    it is the larger one.
    """
    least = 1 / alpha - 1
    ratio = least + (1 - least) * rng.uniform(n)
    large = (1 / (1 + ratio)).float()
    pair = torch.stack([large, 1 - large], 1)
    if first == "larger":
        return pair
    heads = rng.uniform(n) < 0.5
    return torch.where(heads.view(-1, 1), pair, pair.flip(1))

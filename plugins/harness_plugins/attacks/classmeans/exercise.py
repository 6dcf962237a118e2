"""What the owner's law does to a mixture, tried on public images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Channel
from harness_plugins.mixing import mix
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

_IMAGES = 200
_SURE = 3.0
_EXPLAINED = 0.95
_LEAST = 1e-3


@dataclass(frozen=True)
class Law:
    """What rows of encodings are like, as far as it shows from outside.

    They are `gain` times their mixture, whose weights sum to `held`, plus noise of variance
    `floor` + `slope` t a value, between `least` and `most`. t is (1 - w)^2 where the own
    image's weight w is granted, else the row's mean square. Mixtures are of images about their
    class means, which labels do not explain either: `floor` holds their variance too.
    """

    gain: float = 1.0
    held: float = 1.0
    floor: float = 1.0
    slope: float = 0.0
    least: float = 1.0
    most: float = 1.0

    @classmethod
    def of(cls, prepared: Mapping[str, Tensor]) -> Law:
        """What was stored; where nothing was, the whole mixture and rows that are all alike."""
        return cls(**{name: float(value) for name, value in prepared.items()})

    def stored(self) -> dict[str, Tensor]:
        """By name."""
        return {name: torch.tensor(value) for name, value in vars(self).items()}

    def noise(self, tells: Tensor) -> Tensor:
        """Variance of the noise of rows [n] that show t = `tells` [n]."""
        return (self.floor + self.slope * tells).clamp(self.least, self.most)


def measure_law(view: View) -> Law:
    """From public images under the owner's law, whose weights and partners are known."""
    pool = view.public[:_IMAGES]
    encoded = view.encoder.encode(pool, view.public, view.rng.stream(use="exercise"))
    weights, sources = encoded.secrets.weights, encoded.secrets.sources
    images = torch.cat([pool.images, view.public.images])  # public ones count from n on
    mixtures = mix(images, sources, weights)
    encodings = encoded.images.to(mixtures)
    gain = _gain(_fitted(encodings, mixtures), mixtures)
    power, content = mean_square(encodings), gain**2 * mean_square(mixtures)
    own = view.has(Channel.WEIGHTS)
    tells = (1 - weights[:, 0]).square().to(power) if own else power
    floor, slope = _line(tells, (power - content).clamp(min=0), trusted=own)
    noise = floor + slope * tells + float(content.mean())
    least, most = (float(end) for end in noise.clamp(min=_LEAST).aminmax())
    held = float(weights.sum(1).mean())
    return Law(gain, held, floor + float(content.mean()), slope, least, most)


def mean_square(rows: Tensor) -> Tensor:
    """[n] of rows [n, ...]."""
    flat = rows.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1)
    return norms.square() / flat.shape[1]


def _fitted(encodings: Tensor, mixtures: Tensor) -> Tensor:
    space = Subspace.between(tuple(mixtures.shape[1:]), encodings, "auto")
    return space.recover(space.project(encodings))


def _gain(encodings: Tensor, mixtures: Tensor) -> float:
    """Least squares through zero, held to [0, 1]; 1 or 0 where that is within the error."""
    energy = mixtures.square().sum()
    gain = (encodings * mixtures).sum() / energy
    error = (encodings - gain * mixtures).square().mean().sqrt() / energy.sqrt()
    if abs(gain - 1) < _SURE * error:
        return 1.0
    return float(gain.clamp(0, 1)) if gain > _SURE * error else 0.0


def _line(tells: Tensor, noise: Tensor, *, trusted: bool) -> tuple[float, float]:
    """Intercept and slope of noise [n] over what tells it [n]; slope 0 where it hardly does.

    A row's mean square also grows with the brightness of its images: rows weighted by it would
    count dark images for more, and no number of rows mends that. It must explain nearly all.
    """
    apart, off = tells - tells.mean(), noise - noise.mean()
    spread = apart.square().sum().clamp(min=torch.finfo(tells.dtype).tiny)
    slope = (apart * off).sum() / spread
    explained = slope * (apart * off).sum() / off.square().sum().clamp(min=spread * 1e-12)
    content = (apart - off).square().sum() / spread
    if slope <= 0 or (not trusted and (explained < _EXPLAINED or content > 1 - _EXPLAINED)):
        return float(noise.mean()), 0.0
    return float(noise.mean() - slope * tells.mean()), float(slope)

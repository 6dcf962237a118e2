"""How an encoder mixes and how much noise it adds, measured on the attacker's own images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.mixture import Mixture

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Samples, View
    from harness_plugins.mixtures.subspace import Subspace

_EXERCISED, _FEWEST = 2000, 64
_VALUES = 1 << 26
"""Numbers that the encodings of an exercise hold at the most, 256 MB."""
_FITS = 4
_SURE = 5.0
"""Standard errors within which a measured gain is taken for one, or for none at all."""


@dataclass(frozen=True)
class NoiseLaw:
    """A row is gain · (its mixture) and noise of a power that its weights tell.

    Power per value: `constant` + `cover` (1-w)², w the weight of the row's own image; and, of
    public images in the mixture, `patches` times the sum of their squared weights, with the
    spectrum of the images themselves. `gain` is 0 where the encoding has no linear trace of what
    is in it, as under random signs. `rounding` is the least power: that of float32.
    """

    gain: float
    constant: float
    cover: float
    patches: float
    rounding: float

    def power(self, weights: Tensor) -> Tensor:
        """[n] white noise of rows with weights [n, k]."""
        own = weights[:, 0].to(torch.float64)
        return (self.constant + self.cover * (1 - own).square()).clamp(min=self.rounding)

    def patched(self, mixture: Mixture) -> Tensor:
        """[n] noise with the images' spectrum, in units of the images' own variances."""
        return self.patches * mixture.public.square().sum(1).to(torch.float64)

    @property
    def hidden(self) -> bool:
        """Whether encodings have no linear trace of their images."""
        return self.gain == 0


def exercise(view: View) -> tuple[Samples, Encoded]:
    """Public images, and what the encoder makes of them: fewer where encodings are large."""
    few = _encoded(view, view.public[:_FEWEST], "probe")
    count = max(_FEWEST, min(_EXERCISED, _VALUES // few.images[0].numel()))
    samples = view.public[:count]
    return samples, _encoded(view, samples, "exercise")


def _encoded(view: View, samples: Samples, use: str) -> Encoded:
    return view.encoder.encode(samples, view.public, view.rng.stream(use=use))


def learn_law(view: View, subspace: Subspace) -> NoiseLaw:
    """The law of the view's encoder."""
    samples, encoded = exercise(view)
    rows = subspace.project(encoded.images.to(view.device))
    return law_of(rows, subspace.embed(samples.images), encoded)


def law_of(rows: Tensor, images: Tensor, encoded: Encoded) -> NoiseLaw:
    """From encodings `rows` [n, d] of `images` [n, d], and the secrets of their encoding."""
    secrets = encoded.secrets
    mixture = Mixture.of(secrets.weights[None], secrets.sources[None], len(images)).to(rows.device)
    mean = images.mean(0)
    mixed = mixture.apply(images - mean)
    noisy = rows - mixture.total.view(-1, 1) * mean
    gain = _gain(noisy, mixed)
    left = noisy.sub_(mixed, alpha=gain).square().mean(1)
    rounding = _rounding(rows)
    spread = float((images - mean).square().mean())
    fitted = _fit(left.cpu().double().clamp(min=rounding), secrets.weights, mixture.cpu(), spread)
    return NoiseLaw(gain, *fitted, rounding)


def _gain(noisy: Tensor, mixed: Tensor) -> float:
    """The slope of rows over mixtures; exactly 1 or 0 where the data cannot tell it from them."""
    energy = float(mixed.square().sum())
    if energy == 0:
        return 1.0
    slope = float((noisy * mixed).sum()) / energy
    residual = max(0.0, float(noisy.square().sum()) - slope**2 * energy)
    error = (residual / noisy.numel() / energy) ** 0.5
    for certain in (1.0, 0.0):
        if abs(slope - certain) <= _SURE * error + 1e-4:
            return certain
    return slope


def _rounding(rows: Tensor) -> float:
    """Power of float32's rounding of such values: uniform over half a unit in the last place."""
    unit = torch.finfo(torch.float32).eps / 2
    return max(float(rows.square().mean()) * unit**2 / 3, 1e-30)


def _fit(
    left: Tensor, weights: Tensor, mixture: Mixture, spread: float
) -> tuple[float, float, float]:
    """Non-negative `constant`, `cover`, `patches` of the powers `left` [n], by relative error.

    Relative to what is fitted, in a few rounds: relative to `left` itself, rows that happen to
    have little would weigh most, and powers that vary be taken for too small.
    """
    from scipy.optimize import nnls

    own = weights[:, 0].double()
    public = mixture.public.double().square().sum(1) * spread
    columns = torch.stack([torch.ones_like(own), (1 - own).square(), public], 1)
    fitted, least = left, left.min()
    for _ in range(_FITS):
        ratios = (columns / fitted.view(-1, 1)).numpy(), (left / fitted).numpy()
        found = torch.from_numpy(nnls(*ratios)[0])
        fitted = (columns @ found).clamp(min=float(least))
    constant, cover, patches = found.tolist()
    return constant, cover, patches

"""Rows of random images, with noise that a budget asks for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.api import (
    CellFailed,
    Encoded,
    Law,
    NotApplicable,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Stream,
)
from harness_plugins.defenses.dpmix import DpmixConfig
from harness_plugins.mixing import mix_labels, mix_samples
from harness_plugins.privacy.gaussian import mu_of
from harness_plugins.privacy.subsampled import epsilon_of, noise_of
from harness_plugins.random_rows import RandomRows, spans
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

SENSITIVITY = math.sqrt(2)
"""Of (Σ x / C, Σ y): an image of norm C at most, and a label of norm one."""
_BLOCK = 1 << 18
_PUBLIC = 1000
"""Public images whose median norm is taken."""
_LESS = 1 - 2.0**-22
"""Of a factor, so that rounding to float32 lifts no norm above C."""


class Dpmix(PiecewiseDefense[DpmixConfig]):
    """x~ = (Σ_S clip_C(x) + noise) / m, labels alike."""

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """`m`, `norm` and `noise` are resolved, of public images and the number of private ones.

        Sources are the row's own image first, of weight 0 where chance left it out, then the
        others, filled up with weights of 0. NotApplicable without public images and `norm`.
        """
        if len(private) < 2:
            raise NotApplicable("'dpmix' hides whether an image was drawn: it needs two at least.")
        n, m = len(private), self._mixed(len(private))
        norm, noise = self._norm(public), self._noise(n)
        factors = clip_factors(private, norm)
        sources, inside = padded(*drawn(n, m / n, rng.stream(what="members")), n, room(m, n))
        weights = (inside * (factors[sources] / m)).float()
        counted = (inside / m).float()
        deviation, values = noise * SENSITIVITY / m, math.prod(private.shape)
        hard = one_hot_labels(private, public)
        unsure = deviation * rng.stream(what="labels").normal(n, hard.shape[1])
        stream, block = rng.stream(what="noise"), max(1, min(n, _BLOCK // values))
        covers = RandomRows(block, lambda _: stream.normal_later(block, values))

        def rows(index: Tensor) -> Encoded:
            mixed, by = sources[index], weights[index]
            images = mix_samples(private, mixed, by)
            flat = images.flatten(1)
            for part, make in covers.take(len(index)):
                flat[part] += (norm * deviation * make()).to(flat)
            labels = allowed(mix_labels(hard, mixed, counted[index]) + unsure[index].to(hard))
            return Encoded(images, labels, Secrets(by, mixed))

        return Round(private.shape, rows, {"m": m, "norm": norm, "noise": noise})

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Noise of one deviation on every row. What is mixed are images of norm C at most."""
        m, norm, noise = (float(resolved[name]) for name in ("m", "norm", "noise"))
        return Law("gaussian", noise * SENSITIVITY * norm / m, altered="clipped images")

    def guarantee(
        self, images: int, rounds: int, resolved: Mapping[str, float | int | str]
    ) -> Mapping[str, float | int | str]:
        """What so many rounds spend, whatever the option said."""
        noise, rate = float(resolved["noise"]), float(resolved["m"]) / images
        return {
            "epsilon": epsilon_of(noise, self.config.delta, rate, images * rounds),
            "delta": self.config.delta,
            "adjacency": "add or remove one image",
            "mechanism": "Poisson-subsampled Gaussian, by Opacus's PRV accountant",
            "sensitivity": SENSITIVITY,
            "noise": noise,
            "sample_rate": rate,
            "steps": images * rounds,
            "assumptions": "the number of images is public, and decides rate and rows; the norm "
            "depends on public images and options alone; real-valued noise; "
            f"rounds in all: {rounds}",
        }

    def _mixed(self, n: int) -> int:
        """At most half of the images: of all of them no draw hides any."""
        config = self.config
        wanted = config.m
        if wanted is None:
            mu = mu_of(config.epsilon, config.delta)
            wanted = round(mu / 2 * math.sqrt(n / config.rounds))
        return max(1, min(wanted, n // 2))

    def _norm(self, public: Samples) -> float:
        if self.config.norm is not None:
            return self.config.norm
        if not len(public):
            raise NotApplicable("'dpmix' clips at the norm of public images, and there are none.")
        norms: Tensor = torch.linalg.vector_norm(public.images[:_PUBLIC].flatten(1), dim=1)
        return self.config.clip * max(float(norms.median()), torch.finfo(norms.dtype).tiny)

    def _noise(self, n: int) -> float:
        config = self.config
        if config.noise is not None:
            return config.noise
        rate = self._mixed(n) / n
        return noise_of(config.epsilon, config.delta, rate, n * config.rounds)


def clip_factors(samples: SamplesOnDemand, norm: float) -> Tensor:
    """[n] float64 that bring each image to a norm of at most `norm`."""
    parts = []
    for span in spans(len(samples), math.prod(samples.shape), _BLOCK):
        lengths: Tensor = torch.linalg.vector_norm(samples[span].images.flatten(1).double(), dim=1)
        parts.append((norm / lengths.clamp(min=1e-300)).clamp(max=1) * _LESS)
    return torch.cat(parts).cpu()


def drawn(n: int, rate: float, rng: Stream) -> tuple[Tensor, Tensor]:
    """Row and image of every membership: each image is in each of n rows with chance `rate`.

    By the gaps between memberships in all n² places, which are geometric: as many numbers are
    drawn as there are memberships, and not as there are places.
    """
    if rate >= 1:
        places = torch.arange(n * n)
        return places // n, places % n
    found, last = [], -1
    while last < n * n:
        uniform = 1 - rng.uniform(max(64, int(n * n * rate))).numpy()
        gaps = np.floor(np.log(uniform) / math.log1p(-rate)).astype(np.int64) + 1
        at = last + np.cumsum(gaps)
        found.append(at)
        last = int(at[-1])
    places = np.concatenate(found)
    places = places[places < n * n]
    return torch.from_numpy(places // n), torch.from_numpy(places % n)


def room(m: int, n: int) -> int:
    """Columns that hold every row's images, of which m are expected, and the row's own.

    All rounds have the same. By Bernstein's inequality a row has more with a chance below 1e-13.
    """
    return 1 + min(n - 1, math.ceil(m + 8 * math.sqrt(m) + 16))


def padded(rows: Tensor, images: Tensor, n: int, columns: int) -> tuple[Tensor, Tensor]:
    """[n, columns] sources, a row's own image first, and whether each is inside, 1 or 0.

    CellFailed where a row has more.
    """
    others = rows != images
    counts = rows[others].bincount(minlength=n)
    place = torch.arange(len(counts)).repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    column = 1 + torch.arange(len(place)) - starts[place]
    if int(counts.max()) >= columns:
        raise CellFailed(f"a row drew {int(counts.max())} images, and has room for {columns - 1}.")
    sources = torch.arange(n).view(-1, 1).repeat(1, columns)
    inside = torch.zeros(sources.shape, dtype=torch.float64)
    sources[place, column] = images[others]
    inside[place, column] = 1.0
    inside[rows[~others], 0] = 1.0
    return sources, inside


def allowed(labels: Tensor) -> Tensor:
    """The nearest soft labels [n, classes]: not negative, of a sum of 1 at most.

    Duchi et al., Efficient Projections onto the l1-Ball for Learning in High Dimensions, 2008,
    figure 1, where clamping alone leaves too large a sum.
    """
    clamped = labels.clamp(min=0)
    falling = labels.sort(dim=1, descending=True).values
    shares = (falling.cumsum(1) - 1) / torch.arange(1, labels.shape[1] + 1).to(labels)
    last = (falling > shares).sum(1, keepdim=True).clamp(min=1) - 1
    projected = (labels - shares.gather(1, last)).clamp(min=0)
    return torch.where(clamped.sum(1, keepdim=True) > 1, projected, clamped)

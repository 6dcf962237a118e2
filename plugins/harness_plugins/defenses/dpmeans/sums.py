"""Class sums with a proven budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import (
    Measured,
    NotApplicable,
    Samples,
    SamplesOnDemand,
    StatisticsDefense,
    Stream,
)
from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.privacy.gaussian import mu_of

if TYPE_CHECKING:
    from torch import Tensor

SENSITIVITY = 2.0
"""Of sums over the clipping norm together with counts: the most that replacing one image moves."""
_BLOCK = 1 << 24
"""Numbers of images that are worked on at a time: 64 MB."""
_PUBLIC = 5000
"""Public images that tell components, at most."""
_FLOOR = 1e-6
"""Of the largest variance: smaller ones are rounding, and are not divided by."""


class Dpmeans(StatisticsDefense[DpmeansConfig]):
    """S_c = Σ clip_C(W(x − m)) + noise, with the class sizes."""

    def measure(
        self, private: SamplesOnDemand, public: Samples, classes: int, rng: Stream
    ) -> Measured:
        """NotApplicable without public images: rows must not be made by private ones."""
        if len(public) < 2:
            raise NotApplicable("'dpmeans' whitens by public images, and there are none.")
        config, basis = self.config, self._basis(public[:_PUBLIC].images)
        deviation = SENSITIVITY / mu_of(config.epsilon, config.delta)
        sums = self._sums(private, classes, basis)
        counts = private.labels.bincount(minlength=classes).double()
        noised = config.counts == "noised"
        noise, count_noise = config.clip * deviation, deviation if noised else 0.0
        sums += noise * rng.normal(*sums.shape).double()
        counts += count_noise * rng.normal(classes).double()
        told = self._guarantee(deviation)
        return Measured(sums.float(), counts.float(), noise, count_noise, basis, told)

    def embed(self, images: Tensor, basis: Mapping[str, Tensor]) -> Tensor:
        """[b, q] rows of norm C at most."""
        return self._clipped(images, basis).float()

    def _basis(self, images: Tensor) -> dict[str, Tensor]:
        """`mean` [d] and `map` [d, q], after which the median norm of public rows is 1."""
        rows = self._pooled(images).flatten(1)
        mean = rows.mean(0)
        directions, variances = principal(rows - mean, self.config.components)
        floor = torch.finfo(rows.dtype).tiny + _FLOOR * variances[0]
        turned = directions / variances.clamp(min=floor).pow(self.config.whiten / 2)
        norms: Tensor = torch.linalg.vector_norm((rows - mean) @ turned, dim=1)
        return {"mean": mean, "map": turned / norms.median().clamp(min=floor)}

    def _clipped(self, images: Tensor, basis: Mapping[str, Tensor]) -> Tensor:
        """[b, q] float64, in which rounding lifts no norm above C by more than 1e-15."""
        rows = (self._pooled(images).flatten(1) - basis["mean"]) @ basis["map"]
        wide = rows.double()
        norms: Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        return wide * (self.config.clip / norms.clamp(min=1e-30)).clamp(max=1)

    def _pooled(self, images: Tensor) -> Tensor:
        """Means over positions, where the option says so."""
        pool, places = self.config.pool, math.prod(images.shape[2:])
        if pool == "yes" or (pool == "auto" and images.shape[1] > places):
            return images.flatten(2).mean(2)
        return images

    def _sums(self, private: SamplesOnDemand, classes: int, basis: Mapping[str, Tensor]) -> Tensor:
        """[classes, q] float64, without noise."""
        size = max(1, _BLOCK // math.prod(private.shape))
        sums = basis["map"].new_zeros(classes, basis["map"].shape[1], dtype=torch.float64)
        for start in range(0, len(private), size):
            part = private[start : start + size]
            sums.index_add_(0, part.labels, self._clipped(part.images, basis))
        return sums

    def _guarantee(self, deviation: float) -> dict[str, float | int | str]:
        config = self.config
        noised = config.counts == "noised"
        sizes = "" if noised else ", class sizes are public"
        return {
            "epsilon": config.epsilon,
            "delta": config.delta,
            "mu": SENSITIVITY / deviation,
            "adjacency": "replace one image by any other, of any class"
            if noised
            else "replace one image by another of its class",
            "mechanism": "Gaussian, calibrated analytically (Balle and Wang, 2018)",
            "sensitivity": SENSITIVITY,
            "noise": deviation,
            "unit": f"the clipping norm {config.clip:g} in sums, one image in counts",
            "assumptions": f"the number of images is public{sizes}; what is summed of an image "
            "depends on public images and options alone; released once; real-valued noise",
        }


def principal(centred: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Directions [d, q] and variances [q] of rows [n, d] about their mean, the largest first.

    Of the smaller of both matrices of products, so that either many rows or many values are fine.
    Nothing is drawn: the same rows give the same directions.
    """
    n, d = centred.shape
    q = max(1, min(most, n - 1, d))
    if d <= n:
        values, vectors = torch.linalg.eigh(centred.T @ centred / n)
        return vectors.flip(1)[:, :q].contiguous(), values.flip(0)[:q].clamp(min=0)
    values, vectors = torch.linalg.eigh(centred @ centred.T / n)
    values = values.flip(0)[:q].clamp(min=0)
    found = centred.T @ vectors.flip(1)[:, :q]
    norms: Tensor = torch.linalg.vector_norm(found, dim=0)
    return found / norms.clamp(min=torch.finfo(found.dtype).tiny), values

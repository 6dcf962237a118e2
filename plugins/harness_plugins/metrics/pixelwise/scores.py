"""Squared errors and angles, a whole batch at a time.

Sums over an image run in float32 on the device; the few numbers per image that they leave are
turned into scores in float64 on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import Metric

CAP_DB = 120.0


def _per_image(values: Tensor) -> Tensor:
    """[n, c, h, w] summed over each image, [n] float64 on the CPU."""
    return values.flatten(1).sum(1).cpu().double()


def _decibel(ratio: Tensor) -> Tensor:
    """10·log10(ratio), held to ±120 dB; infinite and zero ratios land on the caps."""
    return (10 * ratio.log10()).clamp(-CAP_DB, CAP_DB)


class SnrDb(Metric):
    """10·log10(Σx² / Σ(x−x̂)²) on standardised images."""

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] dB within ±120; NaN where the standardised truth has no energy."""
        x = self.scene.scale.standardise(truth)
        error = _per_image((x - self.scene.scale.standardise(images)).square())
        energy = _per_image(x.square())
        return torch.where(energy > 0, _decibel(energy / error), torch.nan)


class Mse(Metric):
    """mean((x−x̂)²) on images in [0,1], or on features and vectors as they are."""

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n], in [0,1] for images."""
        return _per_image((images - truth).square()) / truth[0].numel()


class Psnr(Mse):
    """−10·log10(mse) on images in [0,1]."""

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] dB in [0,120]."""
        return _decibel(1 / super().score(images, truth))


class Cosine(Metric):
    """⟨x,x̂⟩ / (‖x‖·‖x̂‖) on standardised images."""

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] in [-1,1]; 0 for a reconstruction without energy, NaN for such a truth."""
        x, guess = self.scene.scale.standardise(truth), self.scene.scale.standardise(images)
        energy, norms = _per_image(x.square()), _per_image(x.square()) * _per_image(guess.square())
        cosine = _per_image(x * guess) / norms.sqrt().clamp(min=torch.finfo(torch.float32).tiny)
        return torch.where(energy > 0, cosine.clamp(-1, 1), torch.nan)

"""Noise on gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.api import GradientDefense, Stream
from harness_plugins.defenses.gradnoise import GradnoiseConfig

if TYPE_CHECKING:
    from torch import Tensor


class Gradnoise(GradientDefense[GradnoiseConfig]):
    """Adds independent noise to every entry."""

    def protect(self, gradients: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """Each tensor with noise of deviation `scale`, on its device, in its dtype and layout."""
        draw = laplace if self.config.kind == "laplace" else gaussian
        noisy = {}
        for name, gradient in gradients.items():
            noise = draw(gradient.numel(), rng).mul_(self.config.scale)
            noisy[name] = gradient.clone().add_(noise.view(gradient.shape).to(gradient))
        return noisy


def gaussian(count: int, rng: Stream) -> Tensor:
    """[count] float32 of deviation 1, expanded in bulk."""
    return rng.normal(count)


def laplace(count: int, rng: Stream) -> Tensor:
    """[count] float32, Laplace of deviation 1, from bulk normals.

    A normal whose variance is exponential with mean 1 is Laplace with deviation 1, and half the
    squared length of two normals is such a variance.
    """
    first, second, third = rng.normal(3, count).unbind(0)
    return first.square_().add_(second.square_()).sqrt_().mul_(third).mul_(math.sqrt(0.5))

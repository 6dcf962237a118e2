"""Images from their absolute values, learned from public images and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.resizing import fit_images
from harness_plugins.signs import UNFOLDING
from harness_plugins.signs.network import SignNetwork, build
from harness_plugins.signs.school import Lesson, School, cross_entropy, parted

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Progress, Samples, Stream, View

# Noise deviations that are trained for; below the least, absolute values count as exact.
_LEAST, _MOST = 0.02, 1.0
_EXACT = 0.5  # share of the lessons without noise


def learn(
    view: View,
    _budget: Budget,
    progress: Progress,
    *,
    base: int = 16,
    epochs: int = 2,
    images: int = 20_000,
    lr: float = 3e-3,
) -> Mapping[str, Tensor]:
    """The preparation `unfolding`: signs of x from |x|, exact or with noise of known size."""
    held_out, samples = parted(view.public, images)
    fit_images(held_out.images, view.shape)
    network = build(view.shape[0], 1, base, view.device)
    school = School(_lesson, cross_entropy, epochs, lr, view.precision)
    return school.teach(network, samples, held_out, view.rng.stream(use="unfold"), progress)


@dataclass(frozen=True)
class Unfolder:
    """x from |x|."""

    network: SignNetwork

    @classmethod
    def of(cls, view: View) -> Unfolder:
        """What the preparation made."""
        return cls.restore(view.made(UNFOLDING.name), view.shape[0])

    @classmethod
    def restore(cls, kept: Mapping[str, Tensor], channels: int) -> Unfolder:
        """From what `learn` returned."""
        return cls(SignNetwork.of(dict(kept), channels))

    def apply(self, magnitudes: Tensor, noise: float = 0.0) -> Tensor:
        """Expected images [n, c, h, w] for magnitudes with errors of deviation `noise`."""
        return magnitudes * self.signs(magnitudes, noise)

    def signs(self, magnitudes: Tensor, noise: float = 0.0) -> Tensor:
        """Expected signs [n, c, h, w] in (-1, 1)."""
        level = magnitudes.new_full((len(magnitudes), 1), noise)
        return self.network.odds(magnitudes, _told(level)).tanh()


def _told(noise: Tensor) -> Tensor:
    """[n, 1] log-deviations of the noise, 0 where there is next to none."""
    return (noise / _LEAST).clamp(1, _MOST / _LEAST).log()


def _lesson(samples: Samples, rng: Stream) -> Lesson:
    """Half of the images exact, the others with noise of log-uniform deviation."""
    count = len(samples)
    kind, level = rng.uniform(2, count, 1).float().to(samples.images.device)
    noise = _LEAST * (_MOST / _LEAST) ** level * (kind >= _EXACT)
    error = rng.normal(*samples.images.shape).to(samples.images.device)
    seen = (samples.images.abs() + noise.view(-1, 1, 1, 1) * error).abs()
    return Lesson(
        torch.where(noise.view(-1, 1, 1, 1) > 0, seen, samples.images.abs()),
        _told(noise),
        samples.images,
    )

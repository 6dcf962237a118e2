"""A linear discriminant, and how images are shown to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from harness.api import Classifier

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Lesson
    from harness_plugins.learners.components import Components
    from harness_plugins.learners.reading import Reading


def classifier(
    lesson: Lesson, reading: Reading, public: Components, means: Tensor, within: Tensor
) -> Classifier:
    """Of class means [classes, q] about the mean of all, and variances within classes [q].

    log p(x | c) = x'S⁻¹m − m'S⁻¹m/2 + what no class changes, S diagonal in the components.
    """
    slopes = means / within
    offsets = -(slopes * means).sum(1) / 2
    return linear(lesson, reading, public, slopes, offsets)


def linear(
    lesson: Lesson, reading: Reading, public: Components, slopes: Tensor, offsets: Tensor
) -> Classifier:
    """Of `slopes` [classes, q] along the components, about their mean, and offsets [classes]."""
    weights = slopes if public.basis is None else slopes @ public.basis.T
    offsets = offsets - weights @ public.mean
    if reading.magnitudes:
        return OfMagnitudes(lesson, weights, offsets)
    return Linear(reading, weights, offsets)


class Linear(Classifier):
    """weights [classes, d] of an image's row, and offsets [classes]."""

    def __init__(self, reading: Reading, weights: Tensor, offsets: Tensor) -> None:
        self._reading, self._weights, self._offsets = reading, weights, offsets

    def logits(self, images: Tensor) -> Tensor:
        """Of plain images."""
        return torch.addmm(self._offsets, self._reading.embed(images), self._weights.T)


class OfMagnitudes(Classifier):
    """The same of absolute values, of images that are encoded before they are looked at.

    The defense's own inference encodes them, with public images as partners. Where it has none,
    images are looked at as they are.
    """

    def __init__(self, lesson: Lesson, weights: Tensor, offsets: Tensor) -> None:
        self._lesson = lesson
        self._model = nn.Sequential(_Magnitudes(weights, offsets)).eval()
        self._asked = 0

    def logits(self, images: Tensor) -> Tensor:
        """By the mean over encodings of each image."""
        lesson = self._lesson
        if lesson.law.infer is None:
            plain: Tensor = self._model(images)
            return plain
        rng = lesson.rng.stream(use="inference", batch=self._asked)
        self._asked += 1
        return lesson.law.infer(self._model, images, lesson.public, lesson.public, rng)


class _Magnitudes(nn.Module):
    def __init__(self, weights: Tensor, offsets: Tensor) -> None:
        super().__init__()
        self.weights, self.offsets = weights, offsets

    def forward(self, rows: Tensor) -> Tensor:
        """[b, classes] of encodings [b, ...]."""
        return torch.addmm(self.offsets, rows.flatten(1).abs(), self.weights.T)

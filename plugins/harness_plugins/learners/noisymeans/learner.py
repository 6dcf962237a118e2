"""Class means from sums that hold noise, and a linear classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import Budget, Classifier, Config, Learner, Lesson, NotApplicable, Progress
from harness_plugins.learners.components import IMAGES, components_of
from harness_plugins.learners.shrinkage import between_classes

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Statistics

_BATCH = 512


class NoisyMeans(Learner[Config]):
    """What is known of the noise says how far each mean can be trusted."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """NotApplicable without statistics, or without public images, which tell the spread."""
        sums = lesson.statistics
        if sums is None:
            raise NotApplicable("'noisymeans' learns from statistics; encodings were released.")
        if len(lesson.public) < 2:
            raise NotApplicable("'noisymeans' needs public images to tell the spread by.")
        images = torch.split(lesson.public.images[:IMAGES], _BATCH)
        return discriminant(sums, torch.cat([sums.embed(part) for part in images]))


def discriminant(sums: Statistics, public: Tensor) -> Classifier:
    """Of class sums, and rows [m, q] of public images that were embedded likewise.

    log p(z | c) = z'V⁻¹m_c − m_c'V⁻¹m_c/2 + what no class changes, V diagonal in the components.
    """
    spread = components_of(public, public.shape[1])
    # A size that its own noise hides is taken for that of the noise, so that nothing is divided by
    # less than what is known.
    sizes = sums.counts.clamp(min=max(1.0, sums.count_noise)).view(-1, 1)
    means = spread.coordinates(sums.sums / sizes)
    error = sums.noise**2 / sizes.square() + spread.variances / sizes
    overall = means.mean(0)
    contrasts = _contrasts(len(means)).to(means)
    typical = error.mean(0).expand(len(contrasts), -1)
    share = between_classes(contrasts @ means, typical, spread.variances)
    between = share * spread.variances
    shrunk = (means - overall) * between / (between + error)
    slopes = shrunk / (spread.variances - between)
    offsets = -(slopes * shrunk).sum(1) / 2
    assert spread.basis is not None
    weights = slopes @ spread.basis.T
    middle = spread.mean + spread.basis @ overall
    return Linear(sums, weights, offsets - weights @ middle)


def _contrasts(classes: int) -> Tensor:
    """[classes - 1, classes] orthonormal, each of sum 0; one of nothing where there is one class.

    The Householder reflection that turns the first axis into (1, ..., 1) turns the others into
    these.
    """
    if classes == 1:
        return torch.zeros(1, 1)
    v = torch.full((classes,), classes**-0.5)
    v[0] -= 1
    reflected = torch.eye(classes) - 2 * torch.outer(v, v) / v.square().sum()
    return reflected[1:]


class Linear(Classifier):
    """weights [classes, q] of what would be summed of an image, and offsets [classes]."""

    def __init__(self, sums: Statistics, weights: Tensor, offsets: Tensor) -> None:
        self._sums, self._weights, self._offsets = sums, weights, offsets

    def logits(self, images: Tensor) -> Tensor:
        """Of plain images."""
        return torch.addmm(self._offsets, self._sums.embed(images), self._weights.T)

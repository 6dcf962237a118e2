"""Averages, their differences, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import avg_pool2d

from harness.api import Budget, Classifier, Learner, Lesson, Progress
from harness_plugins.learners.centroid_filter import CentroidFilterConfig
from harness_plugins.learners.reading import mean_square
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor


class CentroidFilter(Learner[CentroidFilterConfig]):
    """Nothing but the release is looked at: neither public images nor the law."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """Pooling commutes with sums: centroids are pooled, not rows."""
        gram, pull = _sums(lesson, progress)
        centroids = (torch.linalg.pinv(gram, hermitian=True) @ pull.double()).float()
        planes = fit_images(centroids.view(-1, *lesson.release.shape), lesson.shape)
        pooled = _pooled(planes, self.config.pool)
        return Filter(pooled, self.config.pool)


def _sums(lesson: Lesson, progress: Progress) -> tuple[Tensor, Tensor]:
    """Gram [classes, classes] of labels, and products with rows [classes, d].

    Rows count by one over their energy: most of it is noise, wherever noise matters.
    """
    classes, values = lesson.classes, torch.Size(lesson.release.shape).numel()
    gram = torch.zeros(classes, classes, dtype=torch.float64, device=lesson.device)
    pull = torch.zeros(classes, values, device=lesson.device)
    for turn in range(lesson.release.rounds):
        for encodings, labels in lesson.release.pieces(turn):
            energy = mean_square(encodings).clamp(min=torch.finfo(encodings.dtype).tiny)
            scaled = labels / energy.view(-1, 1)
            gram += (scaled.T @ labels).double()
            pull.addmm_(scaled.T, encodings.flatten(1))
        progress(turn + 1, lesson.release.rounds, "summing encodings by label")
    return gram, pull


def _pooled(planes: Tensor, side: int) -> Tensor:
    """[n, e] averages over squares of planes [n, ..., h, w]; a last one may be smaller."""
    if planes.ndim < 4:
        return planes.flatten(1)
    sides = [min(side, size) for size in planes.shape[-2:]]
    return avg_pool2d(planes, sides, ceil_mode=True).flatten(1)


class Filter(Classifier):
    """Projections on each class's pooled centroid, about the mean of all, of norm 1."""

    def __init__(self, centroids: Tensor, pool: int) -> None:
        self._pool = pool
        self._mean = centroids.mean(0)
        apart = centroids - self._mean
        norms = apart.norm(dim=1, keepdim=True).clamp(min=torch.finfo(apart.dtype).tiny)
        self._filters = apart / norms

    def logits(self, images: Tensor) -> Tensor:
        """Of plain images."""
        return (_pooled(images, self._pool) - self._mean) @ self._filters.T

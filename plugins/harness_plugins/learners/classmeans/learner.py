"""Sums over a release, class means of them, and a linear classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Budget, Classifier, Learner, Lesson, Progress
from harness_plugins.learners.classmeans import ClassMeansConfig
from harness_plugins.learners.components import IMAGES, Components, components_of, plain
from harness_plugins.learners.discriminant import classifier
from harness_plugins.learners.reading import Reading, public_rows, readings
from harness_plugins.learners.shrinkage import between_classes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Sums:
    """Of rows x~ [d] with labels y [classes], noise N and weight v = 1 / (N + content).

    `gram` [classes, classes] of v y y', `pull` [classes, d] of v y x~', `mass` of v, `noise` of
    v² N, `squares` of v², `energy` of v ‖x~‖² / d.
    """

    gram: Tensor
    pull: Tensor
    mass: float = 0.0
    noise: float = 0.0
    squares: float = 0.0
    energy: float = 0.0

    def add(self, rows: Tensor, noise: Tensor, labels: Tensor, content: float) -> None:
        """One piece; one product of [classes, b] and [b, d], and one look at each row's norm."""
        weight = 1 / (noise + content)
        scaled = labels * weight.view(-1, 1)
        self.gram += (scaled.T @ labels).double()
        self.pull.addmm_(scaled.T, rows)
        self.mass += float(weight.sum())
        self.noise += float((weight.square() * noise).sum())
        self.squares += float(weight.square().sum())
        norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
        self.energy += float((weight * norms.square()).sum()) / rows.shape[1]


class ClassMeans(Learner[ClassMeansConfig]):
    """Soft labels say how much of each class a row holds: class means are a regression away."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """One pass over the release, then a system of as many unknowns as classes."""
        reading = Reading.of(lesson)
        public = None
        if len(lesson.public) >= 2:
            rows = public_rows(lesson, reading, IMAGES)
            public = components_of(rows, self.config.components)
        sums = _summed(lesson, reading, public, progress)
        return _classifier(lesson, reading, sums, public)


def _summed(
    lesson: Lesson, reading: Reading, public: Components | None, progress: Progress
) -> Sums:
    content = 1.0 if public is None else float(public.variances.sum()) / len(public.mean)
    d = len(public.mean) if public is not None else len(reading.rows(_example(lesson))[0])
    device = lesson.device
    gram = torch.zeros(lesson.classes, lesson.classes, dtype=torch.float64, device=device)
    sums = Sums(gram, torch.zeros(lesson.classes, d, device=device))
    for turn, rows, noise, labels in readings(lesson, reading):
        sums.add(rows, noise, labels, max(content, 1e-12))
        progress(turn, lesson.release.rounds, "summing encodings by label")
    return sums


def _example(lesson: Lesson) -> Tensor:
    return torch.zeros(1, *lesson.release.shape, device=lesson.device)


def _classifier(
    lesson: Lesson, reading: Reading, sums: Sums, public: Components | None
) -> Classifier:
    """Shrink the means along each component by what the noise leaves of them there.

    In the eigenvectors of the Gram matrix the means' errors are uncorrelated. Noise is fresh in
    every row, but images are the same in all rounds: their part of the error does not average.
    """
    strength, turned = torch.linalg.eigh(sums.gram)
    seen = strength > 1e-6 * float(strength[-1])
    strength, turned = strength[seen].float(), turned[:, seen].float()
    pulled = turned.T @ sums.pull
    held = turned.T @ sums.gram.sum(1).float()  # what each holds of the mean of all
    if public is None:
        public = _plainly(sums, pulled, strength, held)
    means = public.directions((pulled - held.view(-1, 1) * public.mean) / strength.view(-1, 1))
    stale = sums.squares * (reading.again * lesson.release.rounds + reading.once)
    spread = (sums.noise + stale * public.variances) / sums.mass
    error = spread / strength.view(-1, 1)
    # The largest eigenvalue is of the mean of all classes, which tells nothing of classes.
    apart = slice(0, max(1, len(strength) - 1))
    share = between_classes(means[apart], error[apart], public.variances)
    between = share * public.variances
    shrunk = turned @ (means * between / (between + error))
    return classifier(lesson, reading, public, shrunk, public.variances - between)


def _plainly(sums: Sums, pulled: Tensor, strength: Tensor, held: Tensor) -> Components:
    """Without public images: the release's own mean, and what labels leave unexplained."""
    told = float((pulled.square().sum(1) / strength).sum()) / pulled.shape[1]
    left = max(sums.energy - told, 1e-6 * sums.energy) / sums.mass
    overall = (held.view(-1, 1) * pulled / strength.view(-1, 1)).sum(0)
    mean = overall / (held.square() / strength).sum().clamp(min=1e-12)
    return plain(mean, mean.new_tensor(left))

"""One pass over rows in components, and one system of as many unknowns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Budget, Classifier, Learner, Lesson, NotApplicable, Progress
from harness_plugins.learners.components import IMAGES, Components, components_of
from harness_plugins.learners.discriminant import linear
from harness_plugins.learners.reading import Reading, public_rows, readings
from harness_plugins.learners.ridge import RidgeConfig
from harness_plugins.learners.shrinkage import between_classes

if TYPE_CHECKING:
    from torch import Tensor

_LOUD = 10.0
"""Noise that is so many times the images' variance is better told by what lies outside of the
components than by the law tried on a few images: its energy there is known to a thousandth."""
_OUTSIDE = 256


@dataclass
class Sums:
    """Of rows z [q] with labels y, noise N, and weight v = content / (N + content).

    `gram` [q, q] of v z z', `pull` [q, classes] of v z y', `labels` [classes, classes] of v y y',
    `outside` of v times the mean square outside of the components; scalars of v, v², v N, v² N
    and v² N².
    """

    gram: Tensor
    pull: Tensor
    labels: Tensor
    outside: float = 0.0
    mass: float = 0.0
    squares: float = 0.0
    noise: float = 0.0
    fresh: float = 0.0
    rough: float = 0.0

    def add(self, centred: Tensor, basis: Tensor, noise: Tensor, y: Tensor, content: float) -> None:
        """One piece of rows about their mean."""
        weight = content / (noise + content)
        z = centred @ basis
        scaled = z * weight.view(-1, 1)
        self.gram += scaled.T @ z
        self.pull += scaled.T @ y
        self.labels += (y * weight.view(-1, 1)).T @ y
        beyond = centred.shape[1] - z.shape[1]
        if beyond:
            left = centred.square().sum(1) - z.square().sum(1)
            self.outside += float((weight * left).sum()) / beyond
        self.mass += float(weight.sum())
        self.squares += float(weight.square().sum())
        self.noise += float((weight * noise).sum())
        self.fresh += float((weight.square() * noise).sum())
        self.rough += float((weight * noise).square().sum())


class Ridge(Learner[RidgeConfig]):
    """Which mixtures carry which labels, where noise is no excuse."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """NotApplicable without public images, which name the components."""
        if len(lesson.public) < 2:
            raise NotApplicable("'ridge' looks at components of public images; there are none.")
        reading = Reading.of(lesson)
        public = components_of(public_rows(lesson, reading, IMAGES), self.config.components)
        sums = _summed(lesson, reading, public, progress)
        return _classifier(lesson, reading, sums, public)


def _summed(lesson: Lesson, reading: Reading, public: Components, progress: Progress) -> Sums:
    assert public.basis is not None
    content = max(float(public.variances.sum()) / len(public.mean), 1e-12)
    q, classes = len(public.variances), lesson.classes
    zero = public.mean.new_zeros
    sums = Sums(zero(q, q), zero(q, classes), zero(classes, classes))
    for turn, rows, noise, labels in readings(lesson, reading):
        centred = rows - labels.sum(1, keepdim=True) * public.mean
        sums.add(centred, public.basis, noise, labels, content)
        progress(turn, lesson.release.rounds, "summing products of components")
    return sums


def _classifier(lesson: Lesson, reading: Reading, sums: Sums, public: Components) -> Classifier:
    """What the penalty is made of is told by the class means, as `classmeans` sees them."""
    variances = public.variances
    stale = reading.again * lesson.release.rounds + reading.once
    noise = _noise(sums, public)
    louder = noise / sums.noise if sums.noise else 1.0
    strength, turned = torch.linalg.eigh(sums.labels.double())
    seen = strength > 1e-6 * float(strength[-1])
    strength, turned = strength[seen].float().view(-1, 1), turned[:, seen].float()
    means = (sums.pull @ turned).T / strength
    spread = (sums.fresh * louder + stale * sums.squares * variances) / sums.mass
    error = spread / strength
    apart = slice(0, max(1, len(strength) - 1))
    share = between_classes(means[apart], error[apart], variances)
    shrunk = turned @ (means * share * variances / (share * variances + error))
    weights = _solved(sums, noise, louder, spread / share, lesson.classes)
    offsets = -(weights.T * shrunk).sum(1) / 2
    return linear(lesson, reading, public, weights.T, offsets)


def _noise(sums: Sums, public: Components) -> float:
    """The sum of v N over all rows."""
    beyond = len(public.mean) - len(public.variances)
    content = sums.mass * float(public.variances.mean())
    loud = sums.noise > _LOUD * content
    return sums.outside if loud and beyond >= _OUTSIDE else sums.noise


def _solved(sums: Sums, noise: float, louder: float, spread: Tensor, classes: int) -> Tensor:
    """[q, classes].

    What sampling leaves of the noise in the Gram matrix is no larger than the radius of a random
    matrix of such entries. It is added, so that the system has a solution.
    """
    q = len(sums.gram)
    radius = 2 * math.sqrt(q * sums.rough) * louder
    penalty = classes * spread + radius
    gram = sums.gram.double() + torch.diag(penalty.double() - noise)
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp(min=1e-6 * float(values[-1]))
    solved: Tensor = vectors @ ((vectors.T @ sums.pull.double()) / values.view(-1, 1))
    return solved.float()

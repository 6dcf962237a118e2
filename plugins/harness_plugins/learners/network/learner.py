"""Train a victim, and ask it about plain images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import Budget, Classifier, Learner, Lesson, NotApplicable, Progress
from harness_plugins.learners.network import NetworkConfig
from harness_plugins.learners.reading import Reading
from harness_plugins.learners.training import (
    PUBLIC,
    Inputs,
    answers,
    fresh,
    has_batchnorm,
    inputs_of,
    recompute,
    train,
    without_batchnorm,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

_RARE = 1e-4
"""Share of a class that soft labels hardly name."""


class Network(Learner[NetworkConfig]):
    """The usual learner, without what makes it fail on noise."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """NotApplicable where BatchNorm is to be avoided and the victim has none."""
        model = fresh(lesson)
        if self.config.batchnorm == "avoid":
            if not has_batchnorm(model):
                raise NotApplicable("the victim has no BatchNorm: `network` trains it as it is.")
            model = without_batchnorm(model)
        reading = Reading.of(lesson)
        inputs = inputs_of(lesson, magnitudes=reading.magnitudes)
        shares = train(model, lesson, inputs, progress)
        public = inputs.images(lesson.public.images[:PUBLIC])
        recompute(model, public)
        if not reading.changes or len(public) < 2:
            return Asked(model, inputs)
        found = answers(model, public)
        offset = shares.clamp(min=_RARE).log()
        return Asked(model, inputs, found.mean(0), found.std(0).clamp(min=1e-12), offset)


class Asked(Classifier):
    """(f(x) - mean) / deviation + offset, each [classes] or a number."""

    def __init__(
        self,
        model: nn.Sequential,
        inputs: Inputs,
        mean: Tensor | float = 0.0,
        deviation: Tensor | float = 1.0,
        offset: Tensor | float = 0.0,
    ) -> None:
        self._model, self._inputs = model, inputs
        self._mean, self._deviation, self._offset = mean, deviation, offset

    def logits(self, images: Tensor) -> Tensor:
        """Of plain images."""
        with torch.no_grad():
            found: Tensor = self._model(self._inputs.images(images))
        return (found - self._mean) / self._deviation + self._offset

"""Train a victim, and let the law ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from harness.api import Budget, Classifier, Config, Learner, Lesson, NotApplicable, Progress
from harness_plugins.learners.reading import Reading
from harness_plugins.learners.training import Inputs, fresh, inputs_of, train

if TYPE_CHECKING:
    from torch import Tensor


class Encoded(Learner[Config]):
    """What the defense's authors would do."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """NotApplicable where the law asks about plain images, or nothing public is there."""
        if lesson.law.infer is None:
            raise NotApplicable(f"'{lesson.law.name}' asks about plain images, as `network` does.")
        if not len(lesson.public):
            raise NotApplicable("a server encodes with public partners; there are none.")
        model = fresh(lesson)
        inputs = inputs_of(lesson, magnitudes=Reading.of(lesson).magnitudes)
        train(model, lesson, inputs, progress)
        return AskedByTheLaw(lesson, model, inputs)


class AskedByTheLaw(Classifier):
    """The law encodes an image as often as it likes, and asks about the encodings."""

    def __init__(self, lesson: Lesson, model: nn.Sequential, inputs: Inputs) -> None:
        self._lesson = lesson
        self._model = _Shown(model, inputs).eval()
        self._asked = 0

    def logits(self, images: Tensor) -> Tensor:
        """As the defense says."""
        law, public = self._lesson.law, self._lesson.public
        assert law.infer is not None
        rng = self._lesson.rng.stream(use="inference", batch=self._asked)
        self._asked += 1
        return law.infer(self._model, images, public, public, rng)


class _Shown(nn.Module):
    def __init__(self, model: nn.Sequential, inputs: Inputs) -> None:
        super().__init__()
        self.model, self._inputs = model, inputs

    def forward(self, encodings: Tensor) -> Tensor:
        """[b, classes] of encodings as they were released."""
        logits: Tensor = self.model(self._inputs.encodings(encodings))
        return logits

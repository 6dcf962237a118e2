"""A learner's jobs: the lesson that it is handed on disk, what it learns, and what it then says.

A lesson is a folder with `lesson.json`, the release and the public images. The images that the
classifier is asked about come in a second job, once it has learned: nothing is learned from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file
from torch import Tensor

from harness.api import Budget, Classifier, Learner, Lesson, Progress, Samples, Scale
from harness.rng import KeyedStream
from harness.sandbox.jobs import Named, built, encoder
from harness.store.artifacts import save_tensors

FRAME, RELEASE, PUBLIC = "lesson.json", "release.safetensors", "public.safetensors"
ASKED, LOGITS = "asked.safetensors", "logits.safetensors"
PIECE = 1024
"""Encodings that a learner is given at a time."""
BATCH = 512
"""Images that a classifier is asked about at a time."""


class LessonFrame(BaseModel):
    """Everything in a lesson that is not a tensor."""

    model_config = ConfigDict(frozen=True)

    learner: Named
    law: Named | None
    victim: Named
    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: float | None
    high: float | None
    shape: tuple[int, ...]
    classes: int
    key: str
    device: str
    seconds: float
    megabytes: int
    threads: int

    @property
    def scale(self) -> Scale:
        """The dataset's scale."""
        return Scale(self.mean, self.std, self.low, self.high)


@dataclass(frozen=True)
class Held:
    """Encodings [T, n, *shape] and labels [T, n, classes] that lie in a file."""

    images: Tensor
    labels: Tensor
    device: torch.device

    @property
    def rounds(self) -> int:
        """How often each image was encoded."""
        return len(self.images)

    @property
    def rows(self) -> int:
        """Encodings of one round."""
        return self.images.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return tuple(self.images.shape[2:])

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings with their soft labels."""
        for start in range(0, self.rows, PIECE):
            rows = slice(start, start + PIECE)
            images, labels = self.images[round_, rows], self.labels[round_, rows]
            yield images.to(self.device), labels.to(self.device)


class Pupil:
    """What a learner's process keeps between its two jobs: the classifier, and its frame."""

    def __init__(self) -> None:
        self._classifier: Classifier | None = None
        self._frame: LessonFrame | None = None

    def learn(self, job: Mapping[str, Any], progress: Progress) -> None:
        """Let the learner at the lesson."""
        folder = Path(job["lesson"])
        frame = LessonFrame.model_validate_json((folder / FRAME).read_bytes())
        torch.set_num_threads(frame.threads)
        lesson = _lesson(folder, frame)
        torch.manual_seed(lesson.rng.stream(what="torch").seed())
        learner: Learner[Any] = built("learners", frame.learner)
        budget = Budget(frame.seconds, frame.megabytes, frame.threads)
        self._frame, self._classifier = frame, learner.learn(lesson, budget, progress)

    def classify(self, job: Mapping[str, Any], progress: Progress) -> None:
        """Ask what was learned about images that were not there before."""
        frame, classifier = self._frame, self._classifier
        assert frame is not None
        if not isinstance(classifier, Classifier):
            raise TypeError(f"learn must return a Classifier, not {type(classifier).__name__}")
        images = load_file(Path(job["asked"]) / ASKED)["images"]
        found = []
        for part in torch.split(images, BATCH):
            unit = part.float() if part.is_floating_point() else part.float() / 255
            with torch.no_grad():
                logits = classifier.logits(frame.scale.standardise(unit).to(frame.device))
            _require_logits(logits, len(part), frame.classes)
            found.append(logits.float().cpu())
            progress(sum(map(len, found)), len(images))
        save_tensors({"logits": torch.cat(found)}, Path(job["out"]) / LOGITS)


def _lesson(folder: Path, frame: LessonFrame) -> Lesson:
    device = torch.device(frame.device)
    release, public = load_file(folder / RELEASE), load_file(folder / PUBLIC, frame.device)
    return Lesson(
        release=Held(release["encodings"], release["labels"], device),
        public=Samples(public["images"], public["labels"]).standardised(frame.scale),
        law=encoder(frame.law, frame.classes),
        scale=frame.scale,
        shape=frame.shape,
        classes=frame.classes,
        device=device,
        rng=KeyedStream(bytes.fromhex(frame.key)),
        victim=built("victims", frame.victim),
    )


def _require_logits(logits: Tensor, images: int, classes: int) -> None:
    """ValueError unless these are numbers, one for each image and class."""
    if not isinstance(logits, Tensor) or logits.shape != (images, classes):
        got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"logits must be [{images}, {classes}]; got {got}")
    if not bool(logits.isfinite().all()):
        raise ValueError("logits hold NaN or infinite values")

"""A learner's jobs: the lesson that it is handed on disk, what it learns, and what it then says.

A lesson is a folder with `lesson.json` and the public images; the release comes in pieces, as they
are asked for. The images that the classifier is asked about come in a second job, once it
has learned: no label of theirs ever does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file
from torch import Tensor

from harness.api import (
    Budget,
    Classifier,
    Config,
    Encoded,
    Encoder,
    Encodings,
    Learner,
    Lesson,
    NotApplicable,
    Progress,
    Samples,
    Scale,
    Statistics,
)
from harness.api.precision import Precision
from harness.rng import KeyedStream
from harness.sandbox.feed import Fed
from harness.sandbox.jobs import Named, built, encoder, statistics
from harness.sandbox.lines import Message
from harness.scoring.utility import checked_logits
from harness.store.artifacts import save_tensors

FRAME, PUBLIC, STATISTICS = "lesson.json", "public.safetensors", "statistics.safetensors"
ASKED, LOGITS = "asked.safetensors", "logits.safetensors"
UNREAD = "statistics were released, and no encodings: read `lesson.statistics`"
BATCH = 512
"""Images that a classifier is asked about at a time."""


class ReleaseSize(BaseModel):
    """How much a release holds: so many rounds of so many rows, encodings of one shape."""

    model_config = ConfigDict(frozen=True)

    rounds: int
    rows: int
    shape: tuple[int, ...]


class LessonFrame(BaseModel):
    """Everything in a lesson that is not a tensor."""

    model_config = ConfigDict(frozen=True)

    learner: Named
    law: Named | None
    victim: Named
    release: ReleaseSize | None
    """None where statistics left, which lie in the folder, and `law` is what released them."""
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
    precision: Precision = "float32"

    @property
    def scale(self) -> Scale:
        """The dataset's scale."""
        return Scale(self.mean, self.std, self.low, self.high)


class Pupil:
    """What a learner's process keeps between its two jobs: the classifier, and its frame.

    `fetch` says where a piece of the release lies, by round and number.
    """

    def __init__(self, fetch: Callable[[int, int], Message]) -> None:
        self._fetch = fetch
        self._classifier: Classifier | None = None
        self._frame: LessonFrame | None = None

    def learn(self, job: Mapping[str, Any], progress: Progress) -> None:
        """Let the learner at the lesson."""
        folder = Path(job["lesson"])
        frame = LessonFrame.model_validate_json((folder / FRAME).read_bytes())
        torch.set_num_threads(frame.threads)
        lesson = _lesson(folder, frame, self._fetch)
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
            found.append(checked_logits(logits, len(part), frame.classes).cpu())
            progress(sum(map(len, found)), len(images))
        save_tensors({"logits": torch.cat(found)}, Path(job["out"]) / LOGITS)


def _lesson(folder: Path, frame: LessonFrame, fetch: Callable[[int, int], Message]) -> Lesson:
    device = torch.device(frame.device)
    public = load_file(folder / PUBLIC, frame.device)["images"]
    unnamed = torch.zeros(len(public), dtype=torch.int64, device=device)
    release, law, sums = _what_left(folder, frame, fetch)
    return Lesson(
        release=release,
        public=Samples(public, unnamed).standardised(frame.scale),
        law=law,
        scale=frame.scale,
        shape=frame.shape,
        classes=frame.classes,
        device=device,
        rng=KeyedStream(bytes.fromhex(frame.key)),
        victim=built("victims", frame.victim),
        precision=frame.precision,
        statistics=sums,
    )


def _what_left(
    folder: Path, frame: LessonFrame, fetch: Callable[[int, int], Message]
) -> tuple[Encodings, Encoder, Statistics | None]:
    """Encodings and their law; or statistics, beside what stands for the encodings they are not."""
    device, size = torch.device(frame.device), frame.release
    if size is not None:
        fed = Fed(size.rounds, size.rows, size.shape, frame.classes, device, fetch)
        return fed, encoder(frame.law, frame.classes), None
    assert frame.law is not None
    found = statistics(frame.law, load_file(folder / STATISTICS, frame.device))
    return NoEncodings(), Encoder(frame.law.name, Config(), not_encoded), found


def not_encoded(*_: object) -> Encoded:
    """In the place of the law of encodings, likewise."""
    raise NotApplicable(UNREAD)


class NoEncodings:
    """In the place of encodings where statistics left: whoever reads it is told so."""

    @property
    def rounds(self) -> int:
        """Not applicable."""
        raise NotApplicable(UNREAD)

    @property
    def rows(self) -> int:
        """Not applicable."""
        raise NotApplicable(UNREAD)

    @property
    def shape(self) -> tuple[int, ...]:
        """Not applicable."""
        raise NotApplicable(UNREAD)

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Not applicable."""
        raise NotApplicable(UNREAD)

"""Checks of learners, on lessons of a few images that lie in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from harness.api import (
    AssetFolder,
    Budget,
    Classifier,
    Config,
    Encoded,
    Encodings,
    HarnessError,
    Lesson,
    NotApplicable,
    ReleaseKind,
    Samples,
    Scale,
    Splits,
    Statistics,
    StatisticsDefense,
)
from harness.api.plugins import silent
from harness.api.release import Encoder
from harness.asking.plan import resolved
from harness.control import run_learner_controls
from harness.rng import KeyedStream, seeded
from harness.sandbox.lessons import NoEncodings, not_encoded
from harness.sandbox.rebuilding import plain
from harness.scoring.utility import checked_logits
from harness.testing.attacks import in_words
from harness.testing.datasets import CASES, Kit, KitConfig, known
from harness.testing.subject import Subject, Unanswered, Violation, find, refusal
from harness.testing.watch import META, TORCH, disciplined, forgetful, on_meta, same, unmoved
from harness.testing.workbench import KEY

CPU = torch.device("cpu")
MEGABYTES = 4096
PIECE = 10
VICTIM = "cnn[epochs=2,width=8]"
FEATURES = (12, 3, 3)


@dataclass(frozen=True)
class Held:
    """Rounds [T, n, *shape] with labels [T, n, classes], handed out ten rows at a time."""

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
        """Copies, in order."""
        for start in range(0, self.rows, PIECE):
            rows = slice(start, start + PIECE)
            images, labels = self.images[round_, rows], self.labels[round_, rows]
            yield images.to(self.device), labels.to(self.device)


def splits(case: str) -> Splits:
    """One of the kit's collections, as an evaluation would split it, standardised."""
    held = Kit(KitConfig.model_validate({"case": case})).load(AssetFolder({}))
    n = CASES[case].private
    parts = (held.train[:n], held.train[n:], held.test)
    private, public, test = (part.standardised(held.scale) for part in parts)
    return Splits(private, public, test, held.scale, held.classes)


def features() -> Splits:
    """What a space would give: maps without bounds, each class about a mean of its own."""
    generator = torch.Generator().manual_seed(5)
    names = CASES["grey"]
    means = torch.randn(3, *FEATURES, generator=generator)
    sizes = (names.private, names.public, names.test)

    def part(count: int) -> Samples:
        labels = torch.arange(count) % 3
        return Samples(means[labels] + torch.randn(count, *FEATURES, generator=generator), labels)

    private, public, test = map(part, sizes)
    channels = FEATURES[0]
    scale = Scale((0.0,) * channels, (1.0,) * channels, low=None, high=None)
    return Splits(private, public, test, scale, ("a", "b", "c"))


def lesson(subject: Subject, on: Splits, rounds: int = 1, device: torch.device = CPU) -> Lesson:
    """What a server gets of these under the defense of the learner's first control."""
    if subject.spec.members:
        raise Unanswered("it is made of other learners, which are checked one by one")
    controls = subject.spec.controls
    public = Samples(on.public.images, torch.zeros_like(on.public.labels))
    named = controls[0].defense if controls else "none"
    summed = subject.spec.reads is ReleaseKind.STATISTICS
    release, law, sums = (
        _sums(named, on, public, device)
        if summed
        else (*_encodings(named, on, public, rounds, device), None)
    )
    victim = resolved("victims", VICTIM, "quick", known())
    return Lesson(
        release=release,
        public=Samples(public.images.to(device), public.labels.to(device)),
        law=law,
        scale=on.scale,
        shape=on.shape,
        classes=len(on.classes),
        device=device,
        rng=KeyedStream(KEY).stream(what="lesson"),
        victim=known().build("victims", victim.name, victim.config),
        statistics=sums,
    )


def _encodings(
    text: str, on: Splits, public: Samples, rounds: int, device: torch.device
) -> tuple[Encodings, Encoder]:
    encode, law = _law(text, on, public)
    made = [encode(KeyedStream(KEY).stream(round=turn)) for turn in range(rounds)]
    labels = torch.stack([_padded(each.labels, len(on.classes)) for each in made])
    return Held(torch.stack([each.images for each in made]), labels, device), law


def _sums(
    text: str, on: Splits, public: Samples, device: torch.device
) -> tuple[Encodings, Encoder, Statistics]:
    """What a defense that releases statistics makes of the images."""
    named = resolved("defenses", text, "quick", known())
    defense: StatisticsDefense[Any] = known().build("defenses", named.name, named.config)
    made = defense.measure(on.private, public, len(on.classes), KeyedStream(KEY))
    moved = {name: tensor.to(device) for name, tensor in made.basis.items()}
    sums, counts = made.sums.to(device), made.counts.to(device)
    found = Statistics(sums, counts, made.noise, made.count_noise, moved, defense.embed)
    return NoEncodings(), Encoder(named.name, named.config, not_encoded), found


def _padded(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.pad(labels, (0, classes - labels.shape[1]))


def _law(text: str, on: Splits, public: Samples) -> tuple[Any, Encoder]:
    """A defense as its owner has it, and as a server knows it."""
    named, classes = resolved("defenses", text, "quick", known()), len(on.classes)
    defense = known().build("defenses", named.name, named.config)
    if not named.spec.protects:
        law = Encoder(named.name, Config(), lambda own, _public, _rng: plain(own, classes))
        return lambda _rng: plain(on.private, classes), law
    found = defense.encode(on.private, public, KeyedStream(KEY).stream(round=0)).resolved
    settled = known().build("defenses", named.name, named.config.model_copy(update=dict(found)))
    infer = settled.infer if settled.infers else None
    law = Encoder(named.name, settled.config, settled.encode, infer)
    return lambda rng: settled.encode(on.private, public, rng), law


def logits(subject: Subject, given: Lesson, images: Tensor) -> Tensor:
    """What the learner says of images; Violation where that is no [n, classes] floats."""
    budget = Budget(subject.seconds, MEGABYTES, 1)
    with seeded(given.rng.stream(what="torch"), CPU):
        learned = subject.build().learn(given, budget, silent)
    if not isinstance(learned, Classifier):
        raise Violation(f"learn returned {type(learned).__name__}, not a Classifier")
    with torch.no_grad():
        found = learned.logits(images)
    try:
        return checked_logits(found, len(images), given.classes)
    except ValueError as error:
        raise Violation(str(error)) from None


def _accuracy(subject: Subject, on: Splits, rounds: int = 1) -> str:
    found = logits(subject, lesson(subject, on, rounds), on.test.images)
    right = (found.argmax(1) == on.test.labels).double().mean().item()
    return f"accuracy {right:.2f}"


@cache
def _first(text: str, seconds: float) -> tuple[str, float]:
    """What was found on the kit's grey images, and how long it took."""
    subject, started = find(text, "learners", seconds), time.perf_counter()
    told = _accuracy(subject, splits("grey"))
    return told, time.perf_counter() - started


def answers(subject: Subject) -> str:
    """A classifier comes back, and says something of every image and class."""
    return _first(subject.text, subject.seconds)[0]


def keeps_its_budget(subject: Subject) -> str:
    """It ends within the seconds that it is told."""
    taken = _first(subject.text, subject.seconds)[1]
    if taken > subject.seconds:
        raise Violation(f"it took {taken:.0f} s, and was told {subject.seconds:g}")
    return f"{taken:.1f} s of {subject.seconds:g}"


def deterministic(subject: Subject) -> str:
    """The same lesson under the same seed gives the same bytes."""
    on = splits("grey")
    one, other = (logits(subject, lesson(subject, on), on.test.images) for _ in range(2))
    if not same(one, other):
        raise Violation("two trainings on one lesson under one seed differ")
    return "two trainings on one lesson under one seed give the same bytes"


def leaves_the_world_alone(subject: Subject) -> str:
    """Global state stays as it was, but for torch's generator, which is seeded for the learner."""
    on = splits("grey")
    given = lesson(subject, on)
    return unmoved(lambda: logits(subject, given, on.test.images), TORCH)


def reads_rounds(subject: Subject) -> str:
    """It learns from one round and from three; statistics leave once."""
    if subject.spec.reads is ReleaseKind.STATISTICS:
        return "reads statistics, which leave once"
    return ", ".join(f"{t} rounds: {_accuracy(subject, splits('grey'), t)}" for t in (1, 3))


def without_public(subject: Subject) -> str:
    """Without public images it learns, or says that it has no use for the lesson."""
    on = splits("grey")
    given = lesson(subject, on)
    bare = replace(given, public=given.public[:0])
    try:
        logits(subject, bare, on.test.images)
    except NotApplicable as error:
        return refusal(error)
    return "learns without public images"


def reads_features(subject: Subject) -> str:
    """Features of a space are no images: they have many channels, and no bounds."""
    try:
        return _accuracy(subject, features())
    except HarnessError as error:
        return refusal(error)


def copes_with(subject: Subject, case: str) -> str:
    """Data out of the ordinary is learned from, or refused in a sentence of the learner's own."""
    try:
        return _accuracy(subject, splits(case))
    except HarnessError as error:
        return refusal(error)


def works_on_any_device(subject: Subject) -> str:
    """It works on the device of its lesson."""
    on = splits("grey")
    away = lesson(subject, on, device=META)
    law, public = away.law, lesson(subject, on).public

    def encode(own: Samples, _public: Samples, rng: Any) -> Encoded:
        made = law.encode(public[: len(own)], public, rng)
        return replace(made, images=made.images.to(META), labels=made.labels.to(META))

    away = replace(away, law=Encoder(law.name, law.config, encode, law.infer))
    return disciplined(subject, lambda: logits(subject, away, on_meta(on.test.images)))


def forgets(subject: Subject) -> str:
    """Learners leave nothing behind in their process."""
    on = splits("grey")
    given = lesson(subject, on)
    return forgetful(lambda _: logits(subject, given, on.test.images))


def passes_its_controls(subject: Subject) -> str:
    """Every control, in its own cell on its own data; what is stored is not run again."""
    if not subject.spec.controls:
        raise Unanswered("none is declared")
    return in_words(run_learner_controls(subject.text, threads=1))

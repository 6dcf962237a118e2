"""What a server makes of packages: they are joined, a learner learns, the model is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.api import (
    Budget,
    Classifier,
    Encoder,
    Learner,
    Lesson,
    NotApplicable,
    ReleaseKind,
    Samples,
    UsageError,
)
from harness.asking.plan import resolved
from harness.packages.model import (
    ASKED,
    Described,
    Learned,
    Model,
    check_folder,
    new_folder,
    require_onnx,
    save_model,
    write_onnx,
)
from harness.packages.package import Package
from harness.packages.program import program_of
from harness.packages.releasing import DISTRIBUTION
from harness.packages.samples import Way, require_known
from harness.packages.statement import Preprocessing, Statement, Used
from harness.rng import public_stream
from harness.running.load import collection_of
from harness.running.run import Observer, Run
from harness.running.stage import plugin_boundary
from harness.sandbox.jobs import Named, encoder
from harness.store.provenance import plain_config

if TYPE_CHECKING:
    from torch import Tensor

APART = 1.5
"""Parameters that parties measured for themselves may differ by this factor."""
PUBLIC = 5000
"""Public images that a learner is given, at most: what closed forms look at."""


@dataclass(frozen=True)
class Joined:
    """Packages of one law and space as one release: each round holds all their rows.

    `notes` say what was not quite alike.
    """

    packages: tuple[Package, ...]
    rounds: int
    classes: tuple[str, ...]
    law: Used
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Encodings of one round, of all parties."""
        return sum(package.rows for package in self.packages)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return self.packages[0].shape

    @property
    def steps(self) -> Preprocessing:
        """What images go through."""
        return self.packages[0].said.preprocessing

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings with soft labels of all classes, one party after another."""
        for package in self.packages:
            at = [self.classes.index(name) for name in package.said.classes]
            for encodings, labels in package.pieces(round_):
                merged = labels.new_zeros(len(labels), len(self.classes))
                merged[:, at] = labels
                yield encodings, merged


def joined(packages: Sequence[Package], rounds: int | None = None) -> Joined:
    """Packages as one release; UsageError names what does not fit, and how to make it fit.

    Classes are merged by name, in the order in which they come up. Without `rounds` all packages
    must have as many.
    """
    first, *others = packages
    for other in others:
        if fault := _misfit(first.said, other.said):
            raise UsageError(f"{other.path} does not fit {first.path}: {fault}")
    ids = [package.said.release for package in packages]
    for package in packages:
        if ids.count(package.said.release) > 1:
            raise UsageError(f"The release {package.path} is named twice.")
    most = min(package.rounds for package in packages)
    if rounds is None and any(package.rounds != most for package in packages):
        counts = ", ".join(f"{p.path} has {p.rounds}" for p in packages)
        raise UsageError(f"Packages differ in rounds ({counts}); --rounds {most} takes the first.")
    if rounds is not None and rounds > most:
        raise UsageError(f"--rounds {rounds}: one of the packages has {most}.")
    classes = tuple(dict.fromkeys(name for p in packages for name in p.said.classes))
    law, notes = _one_law(packages)
    return Joined(tuple(packages), rounds or most, classes, law, notes)


def _misfit(one: Statement, other: Statement) -> str:
    """What two packages cannot be joined for, or nothing."""
    alike = "release one of them --like the other"
    if (one.law.name, one.law.version) != (other.law.name, other.law.version):
        return f"its law is {other.law.name}, the other's {one.law.name}; {alike}"
    for name in sorted({*one.law.config, *other.law.config}):
        mine, theirs = one.law.config.get(name), other.law.config.get(name)
        if mine != theirs and not _near(mine, theirs):
            return f"its law has {name}={theirs}, the other's {name}={mine}; {alike}"
    mine_, theirs_ = one.preprocessing, other.preprocessing
    for name in ("space", "image", "shape", "mean", "std", "low", "high"):
        if getattr(mine_, name) != getattr(theirs_, name):
            return f"its images have another {name}; {alike}"
    return "" if one.shape == other.shape else f"its encodings have another shape; {alike}"


def _near(one: Any, other: Any) -> bool:
    """Numbers that two parties may have measured, each on its own images."""
    both = (one, other)
    if any(isinstance(each, bool) or not isinstance(each, float) for each in both):
        return False
    least, most = sorted(both)
    return bool(least > 0 and most <= APART * least)


def _one_law(packages: Sequence[Package]) -> tuple[Used, tuple[str, ...]]:
    """The law that learners are told: numbers that differ are averaged over rows."""
    first = packages[0].said.law
    config, notes = dict(first.config), []
    for name, value in first.config.items():
        found = [package.said.law.config[name] for package in packages]
        if any(each != value for each in found):
            rows = sum(package.rows for package in packages)
            numbers = zip(found, packages, strict=True)
            mean = sum(float(each or 0) * package.rows for each, package in numbers) / rows
            config[name] = mean
            notes.append(f"parties differ in {name} ({found}): learners are told {mean:.6g}")
    return first.model_copy(update={"config": config}), tuple(notes)


@dataclass(frozen=True)
class Plan:
    """How a server learns. `rounds` None: all."""

    learner: str = "classmeans"
    victim: str = "cnn"
    public: str | None = None
    test: str | None = None
    rounds: int | None = None
    seed: int = 0
    onnx: bool = False


@dataclass(frozen=True)
class Done:
    """A model that was written, and what should be known of it."""

    described: Described
    notes: tuple[str, ...]


def learn(paths: Sequence[Path], asked: Plan, out: Path, observer: Observer) -> Done:
    """Check packages, join them, let a learner learn, and write the model.

    UsageError where packages do not fit or the learner cannot be asked; IntegrityError where one
    was changed; CellFailed where the learner fails.
    """
    check_folder(out)
    if asked.onnx:
        require_onnx()
    with open_packages(paths) as packages:
        release = joined(packages, asked.rounds)
        for package in packages:
            with observer.stage(f"check {package.path.name}") as progress:
                package.check(progress)
        return _learned(release, asked, out, observer)


@contextmanager
def open_packages(paths: Iterable[Path]) -> Iterator[list[Package]]:
    """Several at once; one that cannot be opened closes those before it."""
    with ExitStack() as stack:
        yield [stack.enter_context(Package.open(path)) for path in paths]


def _learned(release: Joined, asked: Plan, out: Path, observer: Observer) -> Done:
    datasets = {"dataset": asked.test or asked.public, "public": asked.public}
    _check_shape(release)
    way = Way.of(release.steps, observer, victim=asked.victim, seed=asked.seed, **datasets)
    used, learner = _learner(way.run, asked)
    lesson = _lesson(release, way, asked)
    torch.manual_seed(lesson.rng.stream(what="torch").seed())
    with plugin_boundary(used.name), observer.stage(f"learn {used.name}") as progress:
        budget = Budget(float("inf"), way.run.cell.request.megabytes, way.run.cell.threads)
        try:
            classifier: Classifier = learner.learn(lesson, budget, progress)
        except NotApplicable as error:
            hint = "" if asked.public else " This server has no public images: --public names some."
            raise UsageError(f"'{used.name}' learns nothing here: {error}{hint}") from None
    program = program_of(classifier, release.steps.shape, used.name)
    learned = Learned(
        learner=used,
        packages=tuple(package.said.release for package in release.packages),
        rows=release.rows,
        rounds=release.rounds,
        public=asked.public or "",
    )
    described = Described(
        schema=1,
        version=version(DISTRIBUTION),
        classes=release.classes,
        preprocessing=release.steps,
        learned=learned,
        steps=program.steps,
        tensors_sha256="",
    )
    notes = list(release.notes)
    if asked.test:
        with observer.stage("test"):
            told, strangers = _tested(Model(described, program), way, asked.test)
        described = described.model_copy(update={"learned": learned.model_copy(update=told)})
        notes += _strangers(asked.test, strangers)
    with new_folder(out) as folder:
        described = save_model(folder, described, program)
        if asked.onnx:
            write_onnx(folder, classifier, described)
    return Done(described, tuple(notes))


def _check_shape(release: Joined) -> None:
    """UsageError where encodings are of another shape than images, and no law makes them so."""
    shape, side = release.steps.shape, release.law.config.get("resolution")
    wanted = shape if side is None else (shape[0], side, side)
    if release.shape != wanted:
        raise UsageError(
            f"Encodings of shape {release.shape} are not what the law '{release.law.name}' makes "
            f"of images of shape {shape}: that is {wanted}."
        )


def _strangers(dataset: str, classes: Sequence[str]) -> list[str]:
    if not classes:
        return []
    return [f"left out of the test: images of {dataset} of {', '.join(classes)}, in no package"]


def _learner(run: Run, asked: Plan) -> tuple[Used, Learner[Any]]:
    found = resolved("learners", asked.learner, run.cell.request.preset, run.registry)
    if found.spec.members:
        names = ", ".join(found.spec.members)
        raise UsageError(f"'{found.name}' is many learners; name one of {names}.")
    if found.spec.reads is not ReleaseKind.ENCODINGS:
        raise UsageError(f"'{found.name}' learns from {found.spec.reads}; packages hold encodings.")
    used = Used(name=found.name, version=found.spec.version, config=plain_config(found))
    learner: Learner[Any] = run.build("learners", found.spec, found.config)
    return used, learner


def _lesson(release: Joined, way: Way, asked: Plan) -> Lesson:
    """What a server has: packages, and public images if any are named."""
    run = way.run
    public = _public(way, asked.public)
    victim = run.cell.victim
    stream = public_stream(asked.seed).stream(stage="learn", learner=asked.learner)
    return Lesson(
        release=release,
        public=public,
        law=_law(run, release),
        scale=release.steps.scale,
        shape=release.steps.shape,
        classes=len(release.classes),
        device=torch.device("cpu"),
        rng=stream,
        victim=run.build("victims", victim.spec, victim.config),
    )


def _law(run: Run, release: Joined) -> Encoder:
    """The law as the package says it; UsageError where no defense that is installed has it."""
    law = release.law
    require_known(law, run.registry)
    return encoder(Named(name=law.name, config=dict(law.config)), len(release.classes))


def _public(way: Way, dataset: str | None) -> Samples:
    """Public images, standardised, of which nobody says what they show."""
    if dataset is None:
        nothing = torch.zeros(0, *way.steps.shape)
        return Samples(nothing, torch.zeros(0, dtype=torch.int64))
    cell = way.run.cell
    held = collection_of(way.run, cell.public or cell.dataset).train
    stream = public_stream(cell.request.seed).stream(what="public")
    few = held[stream.permutation(len(held))[:PUBLIC]]
    images = way.standardised(few).images
    return Samples(images, torch.zeros(len(images), dtype=torch.int64))


def _tested(model: Model, way: Way, dataset: str) -> tuple[dict[str, Any], list[str]]:
    """Accuracy over a dataset's test images whose classes are known by name, and which are not."""
    from scipy.stats import binomtest

    held = collection_of(way.run, way.run.cell.dataset)
    names = held.classes
    ours = torch.tensor([model.classes.index(n) if n in model.classes else -1 for n in names])
    wanted = ours[held.test.labels]
    strangers = [n for n in names if n not in model.classes]
    known = wanted >= 0
    if not bool(known.any()):
        raise UsageError(f"'{dataset}' has no test image of a class that packages have.")
    right = 0
    rows = known.nonzero().view(-1)
    for part in torch.split(rows, ASKED):
        logits = model.logits(way.standardised(held.test[part]).images)
        right += int((logits.argmax(1) == wanted[part]).sum())
    interval = binomtest(right, len(rows)).proportion_ci(method="wilson")
    told = {
        "test": dataset,
        "accuracy": right / len(rows),
        "interval": (float(interval.low), float(interval.high)),
    }
    return told, strangers

"""What a server makes of packages: they are joined, a learner learns, the model is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.api import (
    Budget,
    CellFailed,
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
from harness.asking.request import Resolved
from harness.packages.model import (
    ASKED,
    ONNX,
    Described,
    Learned,
    check_folder,
    new_folder,
    require_onnx,
    save_model,
    write_onnx,
)
from harness.packages.package import Package
from harness.packages.program import Program, Step, program_of
from harness.packages.releasing import DISTRIBUTION, content_sha256
from harness.packages.samples import Way, require_known
from harness.packages.statement import Preprocessing, Statement, Used
from harness.rng import public_stream
from harness.running.load import collection_of
from harness.running.run import Observer, Run
from harness.running.stage import code_identity, hardware, plugin_boundary
from harness.sandbox.jobs import Named, encoder
from harness.scoring.flags import first_line
from harness.store.artifacts import Artifact, below
from harness.store.paths import scratch_folder
from harness.store.provenance import plain_config, plugin_identity, sha256_of

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress

APART = 1.5
"""Parameters that parties measured for themselves may differ by this factor."""
NO_PUBLIC = " This server has no public images: --public names some."
STAGE = "learned"
"""The folder in the store of what learners made of packages."""
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
    stored: tuple[str, ...]
    """Learners whose models an earlier command had stored."""


def learn(paths: Sequence[Path], asked: Plan, out: Path, observer: Observer) -> Done:
    """Check packages, join them, let learners learn, and write the model of the best.

    What each learner made is kept in the store as soon as it ended: the same command goes on from
    there. UsageError where packages do not fit or the learner cannot be asked; IntegrityError where
    one was changed; CellFailed where the learner fails.
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
    options = {"learner": asked.learner, "victim": asked.victim, "seed": asked.seed}
    _check_shape(release)
    way = Way.of(release.steps, observer, **options, **datasets)
    learners = _learners(way.run, asked)
    school = School(release, way, _public(way, asked.public), _law(way.run, release), asked)
    taught, left_out = _all_taught(school, learners, observer)
    best, told, strangers = next(iter(taught)), dict[str, Any](), list[str]()
    if asked.test:
        trials = _trials(taught, release.classes, way, asked.test, observer)
        best, told = _chosen(trials, asked)
        strangers = [*_strangers(asked.test, way, release.classes)]
    described = _described(release, asked, learners[best], taught[best].program, told)
    with new_folder(out) as folder:
        described = save_model(folder, described, taught[best].program)
        if (onnx := taught[best].onnx) is not None:
            (folder / ONNX).write_bytes(onnx)
    stored = tuple(name for name, each in taught.items() if each.stored)
    return Done(described, (*release.notes, *left_out, *strangers), stored)


def _described(
    release: Joined, asked: Plan, learner: Resolved, program: Program, told: Mapping[str, Any]
) -> Described:
    """What the model will say; `told` is of the test images."""
    used = Used(name=learner.name, version=learner.spec.version, config=plain_config(learner))
    learned = Learned(
        learner=used,
        packages=tuple(package.said.release for package in release.packages),
        rows=release.rows,
        rounds=release.rounds,
        public=asked.public or "",
        **told,
    )
    return Described(
        schema=1,
        version=version(DISTRIBUTION),
        classes=release.classes,
        preprocessing=release.steps,
        learned=learned,
        steps=program.steps,
        tensors_sha256="",
    )


def _learners(run: Run, asked: Plan) -> Mapping[str, Resolved]:
    """Who learns, as written; UsageError where nobody could say whose model counts."""
    found = run.cell.learners
    if asked.test is None and len(found) > 1:
        raise UsageError(
            f"'{asked.learner}' is many learners; --test chooses among them, or name one of "
            f"{', '.join(found)}."
        )
    for each in found.values():
        if each.spec.reads is not ReleaseKind.ENCODINGS:
            raise UsageError(
                f"'{each.name}' learns from {each.spec.reads}; packages hold encodings."
            )
    return found


def _all_taught(
    school: School, learners: Mapping[str, Resolved], observer: Observer
) -> tuple[dict[str, Taught], list[str]]:
    """What each made; of a set, notes on those that made nothing."""
    taught, failed = {}, {}
    for name, learner in learners.items():
        try:
            taught[name] = school.taught(name, learner, observer)
        except (UsageError, CellFailed) as error:
            if len(learners) == 1:
                raise
            failed[name] = first_line(error)
    if not taught:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise CellFailed(f"no learner came to an end ({reasons})")
    return taught, [f"{name} is left out: {reason}" for name, reason in failed.items()]


@dataclass(frozen=True)
class Taught:
    """What a learner made, and the same for ONNX's runtimes where that is asked for."""

    program: Program
    onnx: bytes | None
    stored: bool
    """Whether an earlier command had it learn."""

    @classmethod
    def of(cls, artifact: Artifact, *, stored: bool) -> Taught:
        """What is in the store; UsageError where no model can hold what was learned."""
        if "refused" in artifact.facts:
            raise UsageError(artifact.facts["refused"])
        steps = tuple(Step.model_validate(each) for each in artifact.facts["steps"])
        onnx = artifact.tensors.get(ONNX)
        program = Program(steps, below("program.", artifact.tensors))
        return cls(program, None if onnx is None else onnx.numpy().tobytes(), stored)


@dataclass(frozen=True)
class School:
    """What a server has: joined packages that were checked, and public images if any are named."""

    release: Joined
    way: Way
    public: Samples
    law: Encoder
    asked: Plan

    def taught(self, name: str, learner: Resolved, observer: Observer) -> Taught:
        """What a learner makes of it, from the store or made.

        UsageError where it cannot learn from this, or no model can hold what it learned.
        """
        store, key, label = self.way.run.store, self._key(name, learner), f"learn {name}"
        with store.turn(STAGE, key) as stored:
            if stored is not None:
                observer.cached(label)
                return Taught.of(stored, stored=True)
            with observer.stage(label) as progress:
                made = self._made(name, learner, progress)
            store.write(STAGE, key, made)
            return Taught.of(made, stored=False)

    def _key(self, name: str, learner: Resolved) -> str:
        """Of all that decides it: packages are what their seals say, since they were checked."""
        run, law = self.way.run, self.release.law
        return sha256_of(
            {
                **code_identity(__name__),
                "packages": [package.said.seal for package in self.release.packages],
                "rounds": self.release.rounds,
                "law": plugin_identity(resolved("defenses", law.name, "standard", run.registry)),
                "public": content_sha256(self.public.images),
                "learner": [name, plugin_identity(learner)],
                "victim": plugin_identity(run.cell.victim),
                "seed": self.asked.seed,
                "megabytes": run.cell.request.megabytes,
                "hardware": hardware(run.cell),
                "onnx": self.asked.onnx,
            }
        )

    def _made(self, name: str, learner: Resolved, progress: Progress) -> Artifact:
        run = self.way.run
        lesson = self._lesson(name)
        budget = Budget(float("inf"), run.cell.request.megabytes, run.cell.threads)
        built: Learner[Any] = run.build("learners", learner.spec, learner.config)
        torch.manual_seed(lesson.rng.stream(what="torch").seed())
        with plugin_boundary(learner.name):
            try:
                classifier: Classifier = built.learn(lesson, budget, progress)
            except NotApplicable as error:
                hint = "" if len(self.public) else NO_PUBLIC
                raise UsageError(f"'{learner.name}' learns nothing here: {error}{hint}") from None
        shape = self.release.steps.shape
        try:
            program = program_of(classifier, shape, learner.name)
        except UsageError as error:  # kept too: it took as long to find out
            return Artifact({}, {"refused": str(error)})
        if program.logits(torch.zeros(1, *shape)).shape[1] != lesson.classes:
            raise CellFailed(f"'{learner.name}' does not give a logit for each class")
        tensors = {f"program.{key}": tensor for key, tensor in program.tensors.items()}
        if self.asked.onnx:
            tensors[ONNX] = self._onnx(classifier)
        return Artifact(tensors, {"steps": [s.model_dump(mode="json") for s in program.steps]})

    def _onnx(self, classifier: Classifier) -> Tensor:
        """The bytes of the file."""
        with scratch_folder(self.way.run.store.root, STAGE) as folder:
            write_onnx(folder / ONNX, classifier, self.release.steps)
            return torch.frombuffer(bytearray((folder / ONNX).read_bytes()), dtype=torch.uint8)

    def _lesson(self, name: str) -> Lesson:
        run, release = self.way.run, self.release
        victim = run.cell.victim
        return Lesson(
            release=release,
            public=self.public,
            law=self.law,
            scale=release.steps.scale,
            shape=release.steps.shape,
            classes=len(release.classes),
            device=torch.device("cpu"),
            rng=public_stream(self.asked.seed).stream(stage="learn", learner=name),
            victim=run.build("victims", victim.spec, victim.config),
        )


def _check_shape(release: Joined) -> None:
    """UsageError where encodings are of another shape than images, and no law makes them so."""
    shape, side = release.steps.shape, release.law.config.get("resolution")
    wanted = shape if side is None else (shape[0], side, side)
    if release.shape != wanted:
        raise UsageError(
            f"Encodings of shape {release.shape} are not what the law '{release.law.name}' makes "
            f"of images of shape {shape}: that is {wanted}."
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


def _trials(
    taught: Mapping[str, Taught],
    classes: tuple[str, ...],
    way: Way,
    dataset: str,
    observer: Observer,
) -> dict[str, Tensor]:
    """By learner, which test images its model names rightly."""
    trials = {}
    for name, each in taught.items():
        with observer.stage(f"test {name}"):
            trials[name] = _tried(each.program, classes, way, dataset)
    return trials


def _tried(program: Program, classes: tuple[str, ...], way: Way, dataset: str) -> Tensor:
    """[n] bool: which test images of a dataset are named rightly.

    Of those whose classes are known by name; UsageError where there are none.
    """
    held = collection_of(way.run, way.run.cell.dataset)
    ours = torch.tensor([classes.index(n) if n in classes else -1 for n in held.classes])
    wanted = ours[held.test.labels]
    rows = (wanted >= 0).nonzero().view(-1)
    if not len(rows):
        raise UsageError(f"'{dataset}' has no test image of a class that packages have.")
    found = []
    for part in torch.split(rows, ASKED):
        logits = program.logits(way.standardised(held.test[part]).images)
        found.append(logits.argmax(1) == wanted[part])
    return torch.cat(found)


def _chosen(trials: Mapping[str, Tensor], asked: Plan) -> tuple[str, dict[str, Any]]:
    """The best learner, the first of equals, and what is told of it.

    One of several is chosen on half of the images and reported on the other half: on the same ones
    it would seem better than it is.
    """
    first, *others = trials
    n = len(trials[first])
    if not others:
        return first, _told(trials[first], asked)
    if n < 2:
        raise UsageError("Learners are chosen on half of the test images; there is one.")
    order = public_stream(asked.seed).stream(what="halves").permutation(n)
    standing = {name: float(t[order[: n // 2]].double().mean()) for name, t in trials.items()}
    best = max(standing, key=lambda name: standing[name])
    return best, {**_told(trials[best][order[n // 2 :]], asked), "validation": standing}


def _told(right: Tensor, asked: Plan) -> dict[str, Any]:
    from scipy.stats import binomtest

    named, n = int(right.sum()), len(right)
    interval = binomtest(named, n).proportion_ci(method="wilson")
    ends = float(interval.low), float(interval.high)
    return {"test": asked.test, "accuracy": named / n, "interval": ends}


def _strangers(dataset: str, way: Way, classes: tuple[str, ...]) -> Iterator[str]:
    held = collection_of(way.run, way.run.cell.dataset)
    if unknown := [name for name in held.classes if name not in classes]:
        yield f"left out of the test: images of {dataset} of {', '.join(unknown)}, in no package"

"""Learn: a lesson goes to a process of its own, what it then says of the test images comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.api.data import Splits
from harness.api.errors import CellFailed, NotApplicable
from harness.api.knowledge import ReleaseKind
from harness.rng import public_stream
from harness.running.release import ReleaseStage
from harness.running.rounds import Rounds
from harness.running.samples import Space
from harness.running.stage import Output, Stage, budget_identity, hardware
from harness.running.workplace import law_of, tensors_in, workplace
from harness.scoring.utility import checked_logits
from harness.store.artifacts import Artifact
from harness.store.paths import disk_errors
from harness.store.provenance import plain_config, plugin_identity

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.api.precision import Precision
    from harness.api.release import Release
    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.running.encoding import Source
    from harness.running.run import Run
    from harness.sandbox.lessons import LessonFrame

LEARNER = "the learner"
"""What messages call it."""
ROUNDS = "rounds for learners"
"""What the time is called in which their releases were made; it is not theirs."""


@dataclass(frozen=True)
class Answered:
    """What a learner says of the test images, [test, classes], and what it took."""

    logits: Tensor
    seconds: float
    megabytes: float


@dataclass(frozen=True, eq=False)
class LearnStage(Stage[Answered]):
    """One learner's answer to all test images, after it learned from a release.

    `defenses` made the release; without any it is the images themselves. Each repeat learns from
    another release of the same images: partners, masks and noise are drawn anew.
    """

    name = "learn"
    written: str
    learner: Resolved
    defenses: tuple[Resolved, ...]
    repeat: int = 0

    @classmethod
    def own(cls, cell: Cell) -> list[LearnStage]:
        """Every training of every learner on the cell's release."""
        return cls._every(cell, cell.defenses)

    @classmethod
    def unprotected(cls, cell: Cell) -> list[LearnStage]:
        """Likewise on the images themselves; where nothing protects them, that is the release."""
        protected = any(defense.spec.protects for defense in cell.defenses)
        return cls._every(cell, () if protected else cell.defenses)

    @classmethod
    def _every(cls, cell: Cell, defenses: tuple[Resolved, ...]) -> list[LearnStage]:
        drawn = _are_drawn(defenses)
        return [
            cls(cell, written, learner, defenses, repeat)
            for written, learner in cell.learners.items()
            for repeat in range(cell.request.repeats if learner.spec.varies or drawn else 1)
        ]

    @property
    def label(self) -> str:
        """By the learner's name; on unprotected images another."""
        unprotected = "" if self.defenses == self.cell.defenses else " unprotected"
        again = f" {self.repeat + 1}" if self.repeat else ""
        return f"{self.name}{unprotected} {self.written}{again}"

    @property
    def reads(self) -> ReleaseKind:
        """What there is to learn from: the cell's statistics, or encodings."""
        own = self.cell.kind is ReleaseKind.STATISTICS and self.defenses == self.cell.defenses
        return ReleaseKind.STATISTICS if own else ReleaseKind.ENCODINGS

    def obtain(self, run: Run) -> Answered:
        """Its answer; NotApplicable where it does not read what leaves."""
        reads = self.learner.spec.reads
        if reads is not self.reads:
            raise NotApplicable(
                f"'{self.learner.name}' learns from {reads}; what there is here are {self.reads}"
            )
        return super().obtain(run)

    @property
    def _draw(self) -> int:
        return self.repeat if _are_drawn(self.defenses) else 0

    @property
    def _rounds(self) -> Rounds:
        return Rounds.under(self.cell, self.defenses, self._draw)

    @property
    def _sums(self) -> ReleaseStage:
        return ReleaseStage(self.cell, self.defenses, self.reads, self._draw)

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The release, public images and test images."""
        sums = self.reads is ReleaseKind.STATISTICS
        return (self._sums if sums else self._rounds, Space.of(self.cell))

    @property
    def _precision(self) -> Precision:
        return self.cell.precision(self.learner.spec, self.cell.victim.spec)

    def facts(self) -> dict[str, Any]:
        """The learner, the network that it may train, its budget and its seed."""
        return {
            "learner": plugin_identity(self.learner),
            "victim": plugin_identity(self.cell.victim),
            "repeat": self.repeat,
            "budget": budget_identity(self.cell),
            "seed": self.cell.request.seed,
            "hardware": hardware(self.cell, self._precision),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Let it learn in a process of its own; the test images come when it has learned."""
        from harness.sandbox.feed import Feed
        from harness.sandbox.lessons import LOGITS

        sums, splits = self.reads is ReleaseKind.STATISTICS, run.splits
        source = None if sums else run(self._rounds)
        released = run(self._sums) if sums else None
        with run.processes.take() as process, workplace(process, self.label) as place:
            _hand_over(place.view, self._frame(run, source), splits, released)
            feed = Feed(source, place.base) if source else None
            job = {"action": "learn", "lesson": str(place.view)}
            learned = process.ask(job, run.budget, progress, who=LEARNER, feed=feed)
            _ask_about(place.before, splits)
            job = {"action": "classify", "asked": str(place.before), "out": str(place.out)}
            spent = learned.seconds
            asked = process.ask(job, run.budget, progress, spent=spent, who=LEARNER)
            left = tensors_in(place.out / LOGITS, LEARNER)
        # its own process has checked them too, if it is honest
        try:
            logits = checked_logits(left.get("logits"), len(splits.test), len(splits.classes))
        except ValueError as error:
            raise CellFailed(f"ValueError: {error}") from None
        if feed:
            run.timing[ROUNDS] = round(run.timing.get(ROUNDS, 0.0) + feed.seconds, 3)
        megabytes = max(learned.megabytes, asked.megabytes)
        seconds = learned.seconds + asked.seconds
        facts = {"own_seconds": seconds, "peak_memory": megabytes, "walls": process.walls}
        return Artifact({"logits": logits}, facts)

    def _frame(self, run: Run, source: Source | None) -> LessonFrame:
        from harness.sandbox.jobs import Named
        from harness.sandbox.lessons import LessonFrame, ReleaseSize

        cell, request, splits = run.cell, run.cell.request, run.splits
        made = self._rounds.defense if source else cell.sums
        size = source and ReleaseSize(rounds=source.rounds, rows=source.rows, shape=source.shape)
        victim, stream = cell.victim, public_stream(request.seed).stream(stage=self.name)
        return LessonFrame(
            learner=Named(name=self.learner.name, config=plain_config(self.learner)),
            law=law_of(made, source.resolved if source else {}) if made else None,
            victim=Named(name=victim.name, config=plain_config(victim)),
            release=size,
            mean=splits.scale.mean,
            std=splits.scale.std,
            low=splits.scale.low,
            high=splits.scale.high,
            shape=splits.shape,
            classes=len(splits.classes),
            key=stream.stream(learner=self.learner.name, repeat=self.repeat).key.hex(),
            device=cell.device,
            seconds=request.time_limit,
            megabytes=request.megabytes,
            threads=cell.threads,
            precision=self._precision,
        )

    def read(self, stored: Artifact) -> Answered:
        """What it said."""
        facts = stored.facts
        return Answered(stored.tensors["logits"], facts["own_seconds"], facts["peak_memory"])


def _are_drawn(defenses: tuple[Resolved, ...]) -> bool:
    """Whether another release would hold other bytes."""
    return any(defense.spec.protects for defense in defenses)


def _hand_over(folder: Path, frame: LessonFrame, splits: Splits, released: Release | None) -> None:
    """Write a lesson: what a server has besides encodings, and nothing else."""
    from harness.sandbox.lessons import FRAME, PUBLIC, STATISTICS
    from harness.store.artifacts import below, save_tensors

    with disk_errors(folder):
        (folder / FRAME).write_text(frame.model_dump_json(), encoding="utf-8")
        save_tensors({"images": splits.public.images}, folder / PUBLIC)
        if released:
            sums = below(f"{ReleaseKind.STATISTICS}.", released.tensors)
            save_tensors(sums, folder / STATISTICS)


def _ask_about(folder: Path, splits: Splits) -> None:
    """Write the test images, without their labels."""
    from harness.sandbox.lessons import ASKED
    from harness.store.artifacts import save_tensors

    with disk_errors(folder):
        save_tensors({"images": splits.test.images}, folder / ASKED)

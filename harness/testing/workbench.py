"""The true pipeline on the kit's images, in one process and in a store that is soon gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from harness.api import Budget, HarnessError, Progress, Release, ReleaseKind
from harness.asking.plan import AttackPlan, plan
from harness.asking.request import make_request
from harness.running.attack import AttackStage
from harness.running.release import ReleaseStage
from harness.running.run import Run, equip
from harness.running.workplace import workplaces
from harness.sandbox.feed import Feed
from harness.sandbox.jobs import pack, prepare, reconstruct, share
from harness.sandbox.lessons import Pupil
from harness.sandbox.lines import Message
from harness.sandbox.process import Spent
from harness.store import Store, cache_root
from harness.store.paths import scratch_folder
from harness.testing.datasets import CASES, NAME, known
from harness.testing.subject import Unanswered

VICTIM = "mlp[epochs=2,width=32]"
SMALL: Mapping[str, Any] = {"victim": VICTIM, "metrics": "snr_db", "threads": 1, "device": "cpu"}
"""What every cell of the kit has in common; a control's own options win over it."""
KEY = b"a key of the conformance kit"
"""Of every stream that a plugin is handed outside the pipeline."""
DESK: list[Feed] = []
"""What the learner in this process reads, if it reads anything."""


def fetch(round_: int, number: int) -> Message:
    """Where a piece lies."""
    return DESK[-1].piece(round_, number)


PUPIL = Pupil(fetch)
ACTIONS: Mapping[str, Callable[[Mapping[str, Any], Progress], None]] = {
    "share": share,
    "prepare": prepare,
    "reconstruct": reconstruct,
    "learn": PUPIL.learn,
    "classify": PUPIL.classify,
}


def asked(case: str = "grey", **options: Any) -> dict[str, Any]:
    """Options of an evaluation on one of the kit's collections."""
    return {**SMALL, **options, **CASES[case].sizes, "dataset": f"{NAME}[case={case}]"}


Serve = Callable[[Mapping[str, Any], Progress], None]


def serve(job: Mapping[str, Any], progress: Progress) -> None:
    """What an attack's or a learner's process does."""
    ACTIONS[job["action"]](job, progress)


class OwnProcess:
    """The one process of all attacks is this one: it holds the kit's images and nothing else."""

    def __init__(self, serve: Serve) -> None:
        self.expected = 0
        self.walls: Mapping[str, Any] = {}
        self.times: list[float] = []
        """How long each job took."""
        self._serve = serve

    def __enter__(self) -> OwnProcess:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def warm(self) -> None:
        """Nothing has to be started."""

    def take(self) -> OwnProcess:
        """The one that is always free."""
        return self

    def close(self) -> None:
        """Nothing was started."""

    def confine(self, reads: Iterable[Path], writes: Iterable[Path]) -> None:
        """It stays as it is."""

    def ask(
        self,
        job: Mapping[str, Any],
        budget: Budget,
        progress: Progress,
        *,
        spent: float = 0.0,
        who: str = "",
        feed: Feed | None = None,
    ) -> Spent:
        """Do one job; whatever the plugin raises comes through."""
        DESK[:] = [feed] if feed else []
        started = time.perf_counter()
        self._serve(job, progress)
        self.times.append(time.perf_counter() - started)
        return Spent(self.times[-1], 0.0)


class Workbench:
    """One cell, ready to be made step by step."""

    def __init__(self, run: Run, process: OwnProcess) -> None:
        self.run = run
        self.process = process

    @property
    def plan(self) -> AttackPlan:
        """The attack with its channels; Unanswered where the cell cannot be."""
        main = self.run.cell.main
        if main is None:
            raise Unanswered(self.run.cell.reason or "the cell has no attack")
        return main

    def release(self, kind: ReleaseKind) -> Release:
        """What leaves under the cell's defenses."""
        return self.run(ReleaseStage(self.run.cell, self.run.cell.defenses, kind))

    def answer(self, chosen: AttackPlan) -> dict[str, Tensor]:
        """What an attack brings back. Unanswered where there is nothing for it to look at."""
        try:
            self.run(ReleaseStage.of(self.run.cell))
        except HarnessError as error:
            raise Unanswered(f"there is no such release: {error}") from error
        return pack(self.run(AttackStage(self.run.cell, chosen)).reconstruction)


@contextmanager
def workbench(
    options: Mapping[str, Any], *, secret: bytes | None = None, serve: Serve = serve
) -> Iterator[Workbench]:
    """A cell of these options in a store of its own, under this owner's key."""
    with scratch_folder(workplaces(), "check") as root:
        assets = cache_root() / "assets"
        if assets.is_dir():  # datasets and weights that are here already are here too
            (root / "assets").symlink_to(assets.absolute())
        cell = equip(plan(make_request(**options), known()), root)
        process = OwnProcess(serve)
        run = Run(cell, Store(root), known(), secret=secret, processes=process, guests=False)
        yield Workbench(run, process)

"""The true pipeline on the kit's images, in one process and in a store that is soon gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from harness.api import Budget, HarnessError, Progress, Release, ReleaseKind
from harness.asking.plan import AttackPlan, plan
from harness.asking.request import make_request
from harness.running.attacker import Attacker, desks
from harness.running.context import Context
from harness.running.court import Court
from harness.running.evaluation import equip
from harness.running.keys import Keys
from harness.running.observer import Observer
from harness.running.owner import Owner
from harness.sandbox.jobs import prepare, reconstruct, share
from harness.sandbox.process import AttackProcess, Spent, Workers
from harness.store import Store, cache_root
from harness.store.paths import scratch_folder
from harness.testing.datasets import CASES, NAME, known
from harness.testing.subject import Unanswered

VICTIM = "mlp[epochs=2,width=32]"
SMALL: Mapping[str, Any] = {"victim": VICTIM, "metrics": "snr_db", "threads": 1, "device": "cpu"}
"""What every cell of the kit has in common; a control's own options win over it."""
KEY = b"a key of the conformance kit"
"""Of every stream that a plugin is handed outside the pipeline."""
ACTIONS = {"share": share, "prepare": prepare, "reconstruct": reconstruct}


def asked(case: str = "grey", **options: Any) -> dict[str, Any]:
    """Options of an evaluation on one of the kit's collections."""
    return {**SMALL, **options, **CASES[case].sizes, "dataset": f"{NAME}[case={case}]"}


Serve = Callable[[Mapping[str, Any], Progress], None]


def serve(job: Mapping[str, Any], progress: Progress) -> None:
    """What an attack's process does."""
    ACTIONS[job["action"]](job, progress)


class Hand(AttackProcess):
    """An attack's process that is this one: it holds the kit's images and nothing else."""

    def __init__(self, serve: Serve, times: list[float]) -> None:
        self._serve, self._times = serve, times

    def close(self) -> None:
        """Nothing was started."""

    def ask(
        self, job: Mapping[str, Any], budget: Budget, progress: Progress, *, spent: float = 0.0
    ) -> Spent:
        """Do one job; whatever the attack raises comes through."""
        started = time.perf_counter()
        self._serve(job, progress)
        self._times.append(time.perf_counter() - started)
        return Spent(self._times[-1], 0.0)


class Hands(Workers):
    """Attacks at work in this process."""

    def __init__(self, serve: Serve) -> None:
        self.expected = 0
        self.times: list[float] = []
        self._serve = serve

    def warm(self) -> None:
        """Nothing has to be started."""

    def take(self) -> Hand:
        """The hand that is always free."""
        return Hand(self._serve, self.times)


class Workbench:
    """One cell, ready to be made step by step."""

    def __init__(self, context: Context, serve: Serve) -> None:
        self.context = context
        self.hands = Hands(serve)
        self.owner = Owner(context)
        self.attacker = Attacker(context, self.owner, self.hands)
        self.court = Court(context, self.owner, self.attacker)

    @property
    def plan(self) -> AttackPlan:
        """The attack with its channels; Unanswered where the cell cannot be."""
        main = self.context.cell.main
        if main is None:
            raise Unanswered(self.context.cell.reason or "the cell has no attack")
        return main

    def release(self, kind: ReleaseKind) -> Release:
        """What leaves under the cell's defenses."""
        return self.owner.release_of(self.context.cell.defenses, kind)

    def answer(self, chosen: AttackPlan) -> dict[str, Tensor]:
        """What an attack brings back. Unanswered where there is nothing for it to look at."""
        try:
            _ = self.owner.release
        except HarnessError as error:
            raise Unanswered(f"there is no such release: {error}") from error
        return dict(self.attacker.attacked(chosen).tensors)


@contextmanager
def workbench(
    options: Mapping[str, Any], *, secret: bytes | None = None, serve: Serve = serve
) -> Iterator[Workbench]:
    """A cell of these options in a store of its own, under this owner's key."""
    with scratch_folder(desks(), "check") as root:
        _lend_assets(root)
        cell = equip(plan(make_request(**options), known()), root)
        keys = Keys(cell, "of the kit")
        yield Workbench(Context(cell, keys, Store(root), known(), Observer(), secret), serve)


def _lend_assets(root: Path) -> None:
    """Datasets and weights that are here already are here too."""
    assets = cache_root() / "assets"
    if assets.is_dir():
        (root / "assets").symlink_to(assets.absolute())

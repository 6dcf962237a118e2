"""One cell in this process: every stage that is not stored yet, then the record.

Attacks run in processes of their own; everything that holds the truth stays here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from harness.api import CellFailed
from harness.asking.plan import AttackPlan, Cell
from harness.drawing.pictures import draw_gallery
from harness.running.attacker import Attacker, desks
from harness.running.context import Context, peak_megabytes
from harness.running.court import Court, privacy_of
from harness.running.ensemble import Ensemble, first_line, rising
from harness.running.owner import SPLITS, Owner
from harness.sandbox.process import Workers
from harness.scheduling.steps import Step
from harness.scoring.flag import Flag
from harness.scoring.summary import MetricScore
from harness.store.paths import scratch_folder, sweep
from harness.store.record import Records, RunRecord

Seal = Callable[[dict[str, Any]], RunRecord]
"""Makes a record of the values that came out."""


def run(context: Context, seal: Seal) -> RunRecord:
    """Evaluate one cell and keep its record."""
    with _at_work(context) as workers:
        return Run(context, workers).finish(seal)


def advance(context: Context, step: Step) -> None:
    """Make what one step of a cell puts out, and keep it."""
    with _at_work(context) as workers:
        owner = Owner(context)
        if step == "release":
            _ = owner.release
        elif step == "reference":
            owner.unprotected()
        elif step == "train":
            owner.trained()
        else:
            court = Court(context, owner, Attacker(context, owner, workers))
            _judge(court, context.cell, step)


def _judge(court: Court, cell: Cell, step: Step) -> None:
    """Score a cell's attack, or its companions: that one of those fails, the record will tell."""
    if step == "attack" and cell.main:
        court.judged(cell.main)
    for plan in cell.companions if step == "companions" else ():
        with suppress(CellFailed):
            court.judged(plan)


@contextmanager
def _at_work(context: Context) -> Iterator[Workers]:
    """Processes for attacks; what killed runs left is swept away first."""
    make_deterministic(context.cell.threads)
    for root in (context.store.root, desks()):
        sweep(root)
    with scratch_folder(desks(), "run") as scratch:
        workers = Workers(scratch, context.cell.threads)
        try:
            yield workers
        finally:
            workers.close()


def make_deterministic(threads: int) -> None:
    """Fixed thread count, and the deterministic form of every operation that has one."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")


class Run:
    """One cell under way."""

    def __init__(self, context: Context, workers: Workers) -> None:
        self.context = context
        self.cell = context.cell
        self.owner = Owner(context)
        self.attacker = Attacker(context, self.owner, workers)
        self.court = Court(context, self.owner, self.attacker)
        self.complete = True
        """Whether all of it came to an end: what did not is tried again when asked again."""
        if self._wants("privacy"):
            workers.expected = sum(not self.attacker.stored(plan) for plan in self.cell.attacks)
        if workers.expected:
            workers.warm()

    def _wants(self, half: str) -> bool:
        return self.cell.request.only in (None, half)

    def finish(self, seal: Seal) -> RunRecord:
        """Run every stage that is wanted, keep the record and its gallery."""
        values: dict[str, Any] = {"flags": (), "artifacts": {}}
        if self._wants("utility"):
            values["utility"] = self.owner.utility()
            values["measures"] = self.owner.measures
            self.context.timing.update(self.owner.training_seconds())
        if self._wants("privacy") and self.cell.main:
            several = bool(self.cell.members)
            values |= self._suite() if several else self._privacy(self.cell.main)
        record = seal(values | self._frame(values["artifacts"]))
        records = Records(self.context.store.root)
        records.save(record)
        with self.context.watched("picture"):
            draw_gallery(records.root, record)
        record = record.model_copy(update={"timing": dict(self.context.timing)})
        records.save(record, self.context.keys.record if self.complete else None)
        return record

    def _frame(self, artifacts: dict[str, Any]) -> dict[str, Any]:
        """What a record says besides scores.

        The release comes first: if it was dropped while all that follows was kept, it is made
        here.
        """
        resolved = self.owner.release.resolved
        keys, store = self.context.keys, self.context.store
        sizes = {name: len(getattr(self.owner.splits, name)) for name in SPLITS}
        stored = {
            "load": store.identity("load", keys.load),
            "release": store.identity("release", keys.release),
        }
        return {
            "resolved": resolved,
            "recipe": self.owner.changed_recipe,
            "splits": {**sizes, "targets": self.owner.targets},
            "artifacts": stored | artifacts,
            "timing": self.context.timing,
            "peak_memory": {"owner": peak_megabytes(), **self.context.peak_memory},
        }

    def _suite(self) -> dict[str, Any]:
        """Every member, and the worst case over those that came to an end."""
        ensemble = Ensemble(self.context, self.owner, self.attacker, self.court)
        summed_up = ensemble.summed_up()
        self.complete = ensemble.complete
        return summed_up

    def _privacy(self, main: AttackPlan) -> dict[str, Any]:
        judged = self.court.judged(main)
        attacked = self.attacker.attacked(main)
        companions, flags = self._companions()
        self.context.peak_memory.update(attacked.facts["peak_memory"])
        for label, seconds in self.attacker.seconds(main).items():
            self.context.timing.setdefault(label, seconds)
        keys, store = self.context.keys, self.context.store
        return {
            "privacy": privacy_of(judged),
            "by_image": self.court.by_image(main),
            "companions": companions,
            "identification": judged.facts["identification"],
            "findings": judged.facts["findings"],
            "diagnostics": attacked.facts["diagnostics"],
            "flags": (
                *map(Flag.model_validate, judged.facts["flags"]),
                *rising(self.court, main, main.attack.name),
                *flags,
            ),
            "verdict": judged.facts["verdict"],
            "artifacts": {
                **self.attacker.made(main),
                "attack": store.identity("attack", keys.attack_of(main)),
                "judge": store.identity("judge", keys.judge_of(main)),
            },
        }

    def _companions(self) -> tuple[dict[str, dict[str, MetricScore]], list[Flag]]:
        """The cheap attacks that run in every cell; one that fails is a flag, not a failure."""
        scores, flags = {}, []
        for plan in self.cell.companions:
            name = plan.attack.name
            try:
                scores[name] = privacy_of(self.court.judged(plan))
            except CellFailed as error:
                message = f"{name}: {first_line(error)}"
                flags.append(Flag(name="companion_failed", message=message))
        return scores, flags

"""Cells as steps that can run anywhere: what each makes, and what it waits for. Pure.

Cells share steps: one release serves all attacks on it, one training all cells of a stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from harness.asking.plan import Cell
from harness.running.record import record_key
from harness.running.run import Step, steps_of
from harness.running.stage import Output
from harness.store.provenance import preparation_identity, sha256_of


@dataclass(frozen=True)
class Task:
    """One step of one or more cells. `options` are those of a cell that it can be done for.

    `needs` are tasks that have to be done before. `makes` are the stages and keys that are stored
    after it. `shares` names what it may have to make besides that others want too: two that share
    something had better not run side by side.
    """

    id: str
    step: Step
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    makes: tuple[tuple[str, str], ...] = ()
    shares: frozenset[str] = frozenset()
    title: str = ""
    threads: int = 1
    accelerated: bool = False


@dataclass
class Graph:
    """All tasks by id, in the order in which cells were asked for."""

    tasks: dict[str, Task] = field(default_factory=dict)

    def add(self, steps: Iterable[Task], done: Collection[str] = ()) -> None:
        """A cell's steps, but for those that are done; one that is there stays as it is."""
        for task in steps:
            if task.id not in done:
                needs = tuple(name for name in task.needs if name not in done)
                self.tasks.setdefault(task.id, replace(task, needs=needs))

    def after(self, failed: Iterable[str]) -> set[str]:
        """Ids of all tasks that cannot be done because others failed."""
        lost = set(failed)
        for task in self.tasks.values():  # a task's needs come before it
            if lost.intersection(task.needs):
                lost.add(task.id)
        return lost - set(failed)


def tasks_of(cell: Cell, options: Mapping[str, Any]) -> list[Task]:
    """The tasks of one cell in an order in which they can be done; the last is its record."""
    accelerated = cell.device != "cpu"
    task = partial(Task, options=options, threads=cell.threads, accelerated=accelerated)
    before: list[Task] = []
    for step, stages in steps_of(cell).items():
        below = frozenset(key for stage in stages for key in _below(stage))
        needs = tuple(t.id for t in before if any(key in below for _, key in t.makes))
        before.append(
            task(
                id=f"{step} {sha256_of([stage.key for stage in stages])}",
                step=step,
                needs=needs,
                makes=tuple((stage.name, stage.key) for stage in stages),
                shares=_shared(cell) if step == "attack" else frozenset(),
                title=_title(cell, step),
            )
        )
    last = task(
        id=f"record {record_key(cell)}",
        step="record",
        needs=tuple(task.id for task in before),
        shares=_shared(cell) if cell.members else frozenset(),
        title=_title(cell, "record"),
    )
    return [*before, last]


def _below(output: Output[Any]) -> Iterator[str]:
    """The keys of all that an output is made of."""
    for each in output.inputs:
        yield each.key
        yield from _below(each)


def _title(cell: Cell, step: Step) -> str:
    stack = "+".join(d.name for d in cell.defenses)
    companions = " and ".join(plan.attack.name for plan in cell.companions)
    titles: Mapping[Step, str] = {
        "reference": "train unprotected",
        "companions": f"{stack} × {companions}",
        "attack": f"{stack} × {cell.attack.name}",
        "record": f"{stack} × {cell.attack.name}",
    }
    return titles.get(step, f"{step} {stack}")


def _shared(cell: Cell) -> frozenset[str]:
    """What attacks learn beforehand and share: by code and options, on one dataset."""
    return frozenset(
        sha256_of([cell.dataset.written, preparation_identity(made, plan.attack)])
        for plan in cell.attacks
        for made in plan.preparations
    )

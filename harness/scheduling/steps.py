"""Cells as steps that can run anywhere: what each makes, and what it waits for. Pure.

Cells share steps: one release serves all attacks on it, one training all cells of a stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harness.asking.plan import AttackPlan, Cell
from harness.running.keys import Keys, preparation_identity
from harness.store.canonical import sha256_of

Step = Literal["reference", "release", "train", "attack", "companions", "record"]


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


def steps_of(cell: Cell, keys: Keys, options: Mapping[str, Any]) -> list[Task]:
    """The tasks of one cell in an order in which they can be done; the last is its record."""
    common: dict[str, Any] = {
        "options": options,
        "threads": cell.threads,
        "accelerated": cell.device != "cpu",
    }
    before = [] if cell.reason else list(_before(cell, keys, common))
    stack = "+".join(d.name for d in cell.defenses)
    last = Task(
        id=f"record {keys.record}",
        step="record",
        needs=tuple(task.id for task in before),
        shares=_shared(cell) if cell.members else frozenset(),
        title=f"{stack} × {cell.attack.name}",
        **common,
    )
    return [*before, last]


def _before(cell: Cell, keys: Keys, common: Mapping[str, Any]) -> Iterable[Task]:
    stack = "+".join(d.name for d in cell.defenses)
    only = cell.request.only
    release = Task(
        id=f"release {keys.release}",
        step="release",
        makes=(("release", keys.release),),
        title=f"release {stack}",
        **common,
    )
    yield release
    if only != "privacy":
        yield from _trainings(cell, keys, release, common)
    if only != "utility" and cell.main and not cell.members:
        yield from _attacks(cell, cell.main, keys, {**common, "needs": (release.id,)})


def _attacks(cell: Cell, main: AttackPlan, keys: Keys, common: Mapping[str, Any]) -> Iterable[Task]:
    """The attack, and those that run in every cell of a release."""
    stack = "+".join(d.name for d in cell.defenses)
    yield Task(
        id=f"attack {keys.judge_of(main)}",
        step="attack",
        makes=(("attack", keys.attack_of(main)), ("judge", keys.judge_of(main))),
        shares=_shared(cell),
        title=f"{stack} × {cell.attack.name}",
        **common,
    )
    if cell.companions:
        judged = [keys.judge_of(plan) for plan in cell.companions]
        names = " and ".join(plan.attack.name for plan in cell.companions)
        yield Task(
            id=f"companions {sha256_of(judged)}",
            step="companions",
            makes=tuple(("judge", key) for key in judged),
            title=f"{stack} × {names}",
            **common,
        )


def _trainings(cell: Cell, keys: Keys, release: Task, common: Mapping[str, Any]) -> Iterable[Task]:
    from harness.api.knowledge import ReleaseKind

    kinds = [cell.trained_kind, *[ReleaseKind.ENCODINGS] * (cell.request.repeats - 1)]
    plain = [keys.train_of((), ReleaseKind.ENCODINGS, i) for i, _ in enumerate(kinds)]
    own = [keys.train_of(cell.defenses, kind, i) for i, kind in enumerate(kinds)]
    yield Task(
        id=f"reference {sha256_of(plain)}",
        step="reference",
        makes=tuple(("train", key) for key in plain),
        title="train unprotected",
        **common,
    )
    stack = "+".join(d.name for d in cell.defenses)
    yield Task(
        id=f"train {sha256_of(own)}",
        step="train",
        needs=(release.id,) if cell.kind is cell.trained_kind else (),
        makes=tuple(("train", key) for key in own),
        title=f"train {stack}",
        **common,
    )


def _shared(cell: Cell) -> frozenset[str]:
    """What attacks learn beforehand and share: by code and options, on one dataset."""
    return frozenset(
        sha256_of([cell.dataset.written, preparation_identity(made, plan.attack)])
        for plan in cell.attacks
        for made in plan.preparations
    )

"""Many cells: which are there, which can be, what is missing, and getting it done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harness.api.errors import AssetUnavailable
from harness.asking.plan import Cell, plan
from harness.asking.registry import registry
from harness.boards.answering import answered_by
from harness.boards.cells import BoardCell, Costs
from harness.boards.folder import BoardFolder
from harness.boards.freezing import older
from harness.running.record import record_key
from harness.running.run import Run, lacks, settle
from harness.scheduling.queue import Ended, Outcome, TaskProgress
from harness.scheduling.steps import Graph, Task, tasks_of
from harness.store import Store
from harness.store.record import Records, RunRecord, Status

FIXED_COSTS = {"companions": 5.0, "record": 2.0}
"""Seconds of steps that take much the same everywhere."""

State = Literal["done", "failed", "impossible", "missing", "again", "unavailable"]


Engine = Callable[[Graph, TaskProgress], Iterator[Ended]]
"""Does all tasks; gives each that ended, in the order of ending, with what became of it. A task
that failed is followed by those that waited for it, with the same outcome."""


@dataclass(frozen=True)
class Foreseen:
    """One cell before anything runs.

    `state`: there is a record; its record says that it failed; it cannot be, for the `reason`; it
    is missing; it is to run again, for what its record was made of has moved on; it is either, and
    what it `lacks` is not here. `instead` is the id of a record that another one would replace,
    `older` whether its source is another one by now. `tasks` are its
    steps, `stored` those whose output is in the cache, `seconds` what the others will take, None
    where nothing alike was ever run.
    """

    cell: BoardCell
    plan: Cell
    state: State
    reason: str = ""
    lacks: str = ""
    record: RunRecord | None = None
    instead: str = ""
    older: bool = False
    tasks: tuple[Task, ...] = ()
    stored: frozenset[str] = frozenset()
    seconds: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether there is a record, and no need for another."""
        return self.record is not None


def foresee(
    cells: Sequence[BoardCell],
    root: Path,
    folder: BoardFolder | None = None,
    past: Iterable[RunRecord] = (),
) -> list[Foreseen]:
    """What there is of cells and what is missing. UsageError for a cell that cannot be asked.

    With a board's folder its own records count: what the cache alone has is still to be put
    there. Without one it is what this very code left in the cache, a result or a failure. What
    steps will take is judged by the board's records and the `past` ones.
    """
    known = registry()
    answers = folder.answers() if folder else {}
    costs = Costs([*answers.values(), *past])
    found = []
    for cell in cells:
        planned = settle(plan(cell.request, known), root)
        kept = answers.get(cell.identity) if folder else _of_cache(Records(root), planned)
        found.append(_foreseen(cell, planned, kept, root, costs))
    return found


def _of_cache(cache: Records, planned: Cell) -> RunRecord | None:
    key = record_key(planned)
    return cache.answer(key) or cache.failure(key)


def _foreseen(
    cell: BoardCell, planned: Cell, kept: RunRecord | None, root: Path, costs: Costs
) -> Foreseen:
    lacking, store = lacks(planned, root), Store(root)
    tasks = tuple(tasks_of(planned, cell.options))
    instead = kept.id if kept else ""
    if kept and not answered_by(planned, kept):
        kept = None
    stored = frozenset(
        task.id for task in tasks if task.makes and all(store.has(*made) for made in task.makes)
    )
    return Foreseen(
        cell=cell,
        plan=planned,
        state=_state(planned, kept, lacking, instead),
        reason=planned.reason or ((kept.error or "") if kept else lacking),
        lacks=lacking,
        record=kept,
        instead=instead,
        older=kept is not None and bool(older(kept, registry())),
        tasks=tasks,
        stored=stored,
        seconds={t.id: _cost(t, planned, costs) for t in tasks if t.id not in stored},
    )


def _state(planned: Cell, kept: RunRecord | None, lacking: str, instead: str) -> State:
    if planned.reason or (kept and kept.status == "not_applicable"):
        return "impossible"
    if kept is None:
        return "unavailable" if lacking else "again" if instead else "missing"
    return "done" if kept.status == "ok" else "failed"


def _cost(task: Task, planned: Cell, costs: Costs) -> float | None:
    if task.step in FIXED_COSTS:
        return FIXED_COSTS[task.step]
    stack = "+".join(d.name for d in planned.defenses)
    name = planned.attack.name if task.step == "attack" else stack
    return costs.of(task.step, planned.request, name)


def to_do(
    foreseen: Sequence[Foreseen], *, retry: bool = False, renew: bool = False
) -> list[Foreseen]:
    """Cells without a record; with `retry` also what failed, with `renew` what is older."""
    return [
        f
        for f in foreseen
        if not f.settled or (retry and f.state == "failed") or (renew and f.older)
    ]


def check_here(cells: Iterable[Foreseen]) -> None:
    """AssetUnavailable where one of the cells cannot run here for want of its data."""
    for each in cells:
        if each.lacks:
            raise AssetUnavailable(each.lacks)


def costs_of(cells: Iterable[Foreseen]) -> dict[str, float | None]:
    """Every task that is not stored, once, with what it will take."""
    return {name: cost for each in cells for name, cost in each.seconds.items()}


def graph_of(cells: Sequence[Foreseen]) -> Graph:
    """The tasks of cells that are still to be done, in the cells' order."""
    graph = Graph()
    for each in cells:
        graph.add(each.tasks, each.stored)
    return graph


def fill(
    cells: Sequence[Foreseen],
    engine: Engine,
    root: Path,
    folder: BoardFolder | None,
    progress: TaskProgress,
) -> Iterator[tuple[Foreseen | None, RunRecord | None, Task]]:
    """Do what is missing; each task that ended, with its cell and record where it ended a cell.

    A fatal error (a full disk, corrupt bytes) is raised; what was done before it stays.
    """
    graph = graph_of(cells)
    last = {each.tasks[-1].id: each for each in cells}
    for task, outcome in engine(graph, progress):
        if outcome.status == "fatal":
            raise outcome.raised()
        each = last.get(task.id)
        if each is None:
            yield None, None, task
            continue
        record = _record(each, outcome, root)
        if folder:
            folder.keep(record, each.instead)
        yield replace(each, record=record), record, task


def _record(each: Foreseen, outcome: Outcome, root: Path) -> RunRecord:
    """What the last step made, or the record of a cell that ended before."""
    if outcome.status == "done":
        records = Records(root)
        return records.load(records.path(outcome.record))
    status: Status = outcome.status  # type: ignore[assignment]
    return Run.open(each.cell.options, cache=root).end(status, outcome.error)

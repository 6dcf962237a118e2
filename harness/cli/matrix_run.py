"""Running what a matrix is missing, and showing how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.boards.costs import in_words, share_done
from harness.scheduling.matrix import Engine, Foreseen, costs_of, fill
from harness.store.paths import scratch_folder

if TYPE_CHECKING:
    from harness.boards.folder import BoardFolder
    from harness.scheduling.steps import Task


def run(
    missing: Sequence[Foreseen],
    root: Path,
    folder: BoardFolder | None,
    engine: str,
    workers: int | None,
    address: str | None,
    *,
    silent: bool,
) -> dict[str, Foreseen]:
    """Run all that is missing; by its last task, each cell with its record."""
    if not missing:
        return {}
    finished: dict[str, Foreseen] = {}
    board = Quiet() if silent else Board(missing)
    with _engine(engine, workers or 1, address, root, missing) as at_work, board:
        for cell, record, task in fill(missing, at_work, root, folder, board.told):
            board.ended(task)
            if cell and record:
                finished[cell.tasks[-1].id] = cell
                board.settled(cell)
    return finished


@contextmanager
def _engine(
    name: str, workers: int, address: str | None, root: Path, missing: Sequence[Foreseen]
) -> Iterator[Engine]:
    if name == "ray":
        from harness.scheduling.cluster import Cluster

        with Cluster(address, root) as cluster:
            yield cluster
        return
    from harness.running.evaluation import check_machine
    from harness.scheduling.local import Local

    for device in {each.plan.device for each in missing}:
        check_machine(device)
    accelerators = _accelerators() if any(e.plan.device == "cuda" for e in missing) else 0
    with (
        scratch_folder(root, "stations") as logs,
        Local(min(workers, accelerators) or workers, logs, accelerators=accelerators) as local,
    ):
        yield local


def _accelerators() -> int:
    import torch

    return torch.cuda.device_count()


SHOWN = 12
"""So many running steps are listed; a cluster may have hundreds."""


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def told(self, task: Task, note: str) -> None:
        """A running task says what it does."""

    def ended(self, task: Task) -> None:
        """A task ended."""

    def settled(self, cell: Foreseen) -> None:
        """A cell has its record."""


class Board(Quiet):
    """How much is done, how long it will take, and what is being done; gone at the end."""

    def __init__(self, cells: Sequence[Foreseen]) -> None:
        self._cells = len(cells)
        self._costs = costs_of(cells)
        self._done: set[str] = set()
        self._count = 0
        self._running: dict[str, tuple[str, str]] = {}
        self._started = time.monotonic()
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Board:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def told(self, task: Task, note: str) -> None:
        """Show what a running task does."""
        self._running[task.id] = (task.title, note)
        self._live.update(self._picture())

    def ended(self, task: Task) -> None:
        """Count it."""
        self._running.pop(task.id, None)
        if task.id in self._costs:
            self._done.add(task.id)
        self._live.update(self._picture())

    def settled(self, cell: Foreseen) -> None:
        """Say so, where the line stays."""
        self._count += 1
        status = cell.record.status if cell.record else "missing"
        self._console.print(Text(f"{status:<14} {cell.cell.title}"))

    def _picture(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_row(f"{self._count} of {self._cells} cells", self._left())
        for title, note in list(self._running.values())[:SHOWN]:
            table.add_row(Text(title), Text(note, style="dim"))
        if len(self._running) > SHOWN:
            table.add_row(f"and {len(self._running) - SHOWN} more")
        return table

    def _left(self) -> str:
        share = share_done(self._costs, self._done)
        taken = time.monotonic() - self._started
        if share < 0.02:
            return in_words(taken)
        return f"{in_words(taken)}, {in_words(taken * (1 - share) / share)} left"

"""What is shown on stderr while work goes on: bars on a terminal, a line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from harness.api.plugins import Progress as Report
from harness.boards.cells import in_words, share_done
from harness.running.run import Observer

if TYPE_CHECKING:
    from harness.scheduling.matrix import Foreseen
    from harness.scheduling.steps import Task

SHOWN = 12
"""So many running steps are listed; a cluster may have hundreds."""


class Lines:
    """Lines that stay, each with the time since the first, where stderr is no terminal: a log."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not (quiet or sys.stderr.isatty())
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Say something, at once: whoever follows the log waits for it."""
        if self._shown:
            click.echo(f"{time.monotonic() - self._started:7.1f} s  {text}", err=True)


class Bars(Observer):
    """One bar per stage of an evaluation, gone when all is done; elsewhere a line as it begins."""

    def __init__(self, *, quiet: bool) -> None:
        self._lines = Lines(quiet=quiet)
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=28),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """Show a bar that pulses until the stage says how far it is."""
        self._lines.say(name)
        task = self._bars.add_task(name, total=None, note="")

        def report(done: int, total: int, note: str = "") -> None:
            self._bars.update(task, completed=done, total=total, note=note)

        yield report
        self._bars.update(task, total=1, completed=1, note="")

    def cached(self, name: str) -> None:
        """Say that a stage needs no work."""
        self._lines.say(f"{name}: stored")
        self._bars.add_task(name, total=1, completed=1, note="stored", start=False)


class LiveTable:
    """How many cells are done, how long the rest will take, and what runs; gone at the end.

    Elsewhere than on a terminal, a line for each step and each cell that ended.
    """

    def __init__(
        self, cells: Sequence[Foreseen], costs: dict[str, float | None], *, quiet: bool
    ) -> None:
        self._lines = Lines(quiet=quiet)
        self._cells = len(cells)
        self._costs = costs
        self._done: set[str] = set()
        self._count = 0
        self._running: dict[str, tuple[str, str]] = {}
        self._started = time.monotonic()
        self._console = Console(stderr=True, quiet=quiet or not sys.stderr.isatty())
        self._live = Live(console=self._console, transient=True, refresh_per_second=4)

    def __enter__(self) -> LiveTable:
        if not self._console.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def told(self, task: Task, note: str) -> None:
        """Show what a running task does."""
        self._running[task.id] = (task.title, note)
        self._live.update(self._picture())

    def ended(self, task: Task) -> None:
        """Count a task that ended."""
        self._running.pop(task.id, None)
        if task.id in self._costs:
            self._done.add(task.id)
        if task.step != "record":  # which ends a cell, and that has a line of its own
            self._lines.say(task.title)
        self._live.update(self._picture())

    def settled(self, cell: Foreseen) -> None:
        """Print a line that stays for a cell that has its record."""
        self._count += 1
        status = cell.record.status if cell.record else "missing"
        self._console.print(Text(f"{status:<14} {cell.cell.title}"))
        self._lines.say(f"{status} {cell.cell.title} ({self._count} of {self._cells} cells)")

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

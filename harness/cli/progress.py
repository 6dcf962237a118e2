"""Progress on a terminal; nothing in a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from harness.api.plugins import Progress as Report
from harness.running.observer import Observer


class Watching(Observer):
    """An observer to use as a context."""

    def __enter__(self) -> Watching:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class Bars(Watching):
    """One bar per stage, on stderr, gone when all is done."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=28),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """Show a bar that pulses until the stage says how far it is."""
        task = self._bars.add_task(name, total=None, note="")

        def report(done: int, total: int, note: str = "") -> None:
            self._bars.update(task, completed=done, total=total, note=note)

        yield report
        self._bars.update(task, total=1, completed=1, note="")

    def cached(self, name: str) -> None:
        """Say that a stage needs no work."""
        self._bars.add_task(name, total=1, completed=1, note="stored", start=False)


def observer(*, quiet: bool) -> Watching:
    """Bars, or silence."""
    return Watching() if quiet else Bars()

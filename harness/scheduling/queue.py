"""What is still to be done of a graph, and what became of the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.api import errors
from harness.api.errors import Ending, HarnessError
from harness.scheduling.steps import Graph, Task

LOST_AT_MOST = 3
"""So often a task may lose its process before it counts as failed."""

TaskProgress = Callable[[Task, str], None]
"""Called with a running task and a few words on what it is doing."""


class Outcome(BaseModel):
    """What became of a task, as it crosses from one process to another.

    `done`: it is in the store, a cell's last step under `record`. Else `error` says why not.
    `fatal` concerns more than this cell (a full disk, corrupt bytes); `kind` is the error's class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Ending | Literal["done", "fatal"]
    error: str = ""
    kind: str = ""
    record: str = ""

    @classmethod
    def of(cls, error: HarnessError) -> Outcome:
        """Of a task that raised this."""
        return cls(status=error.status, error=str(error), kind=type(error).__name__)

    def raised(self) -> HarnessError:
        """A fatal error again, with its class and exit code; of an unknown class, with its name."""
        found = getattr(errors, self.kind, None)
        if isinstance(found, type) and issubclass(found, HarnessError):
            return found(self.error)
        return HarnessError(f"{self.kind}: {self.error}")


Ended = tuple[Task, Outcome]
"""A task, and what became of it."""


class Queue:
    """The tasks of a graph that wait, run, or are done; in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.running: dict[str, Task] = {}
        self.waiting = dict(graph.tasks)
        self._done: set[str] = set()
        self._made: set[str] = set()
        self._lost: dict[str, int] = {}

    @property
    def over(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not (self.waiting or self.running)

    def next(self, *, patient: bool = False) -> Task | None:
        """The first task that can be done, rather one that makes nothing another is making.

        A patient engine has other work for a process than to wait for a lock: it gets no such
        task at all.
        """
        ready = [task for task in self.waiting.values() if self._done.issuperset(task.needs)]
        making = {name for task in self.running.values() for name in task.shares} - self._made
        free = next((task for task in ready if not task.shares & making), None)
        chosen = free or (ready[0] if ready and not patient else None)
        if chosen:
            self.running[chosen.id] = self.waiting.pop(chosen.id)
        return chosen

    def end(self, task: Task, outcome: Outcome) -> Iterator[Ended]:
        """A task's end, and that of all which it takes with it."""
        del self.running[task.id]
        yield task, outcome
        if outcome.status == "done":
            self._done.add(task.id)
            self._made |= task.shares
            return
        lost = self.graph.after({task.id})
        for each in [self.waiting.pop(name) for name in list(self.waiting) if name in lost]:
            yield each, outcome

    def lose(self, task: Task, words: str) -> Iterator[Ended]:
        """Its process was lost: it goes first, unless that has happened too often."""
        count = self._lost[task.id] = self._lost.get(task.id, 0) + 1
        if count < LOST_AT_MOST:
            self.waiting = {task.id: self.running.pop(task.id), **self.waiting}
            return
        error = f"the process at work on it was lost {count} times\n{words}"
        yield from self.end(task, Outcome(status="failed", error=error, kind="CellFailed"))

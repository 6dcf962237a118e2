"""Tasks on this machine: as many processes as asked for, each doing one step at a time."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.engines.outcome import Outcome
from harness.engines.steps import Graph, Task
from harness.worker.process import THREAD_VARIABLES

LOST_AT_MOST = 3
"""So often a step may lose its process before it counts as failed."""
LOG_LINES = 12
PATIENCE = 10.0
"""Seconds that a process may take to end by itself."""

Told = Callable[[Task, str], None]
"""Hears what a running task is doing."""


def unheard(task: Task, note: str) -> None:
    """Nobody listens."""


class Station:
    """One process that does steps."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self.task: Task | None = None
        self._file = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.engines.station"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        assert self._process.stdout
        self.output = self._process.stdout
        os.set_blocking(self.output.fileno(), False)
        self._buffer = b""

    def begin(self, task: Task) -> None:
        """Give it a task; one that is gone is noticed when it is listened to."""
        self.task = task
        order = {"step": task.step, "options": dict(task.options)}
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def heard(self) -> Iterator[dict[str, Any]]:
        """Whole messages that have come; EOFError once the process is gone."""
        chunk = self.output.read()
        if chunk == b"":
            raise EOFError
        *lines, self._buffer = (self._buffer + (chunk or b"")).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def close(self) -> None:
        """End the process, and what it started."""
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.output.close()
        self._file.close()

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


@dataclass
class Queue:
    """What is still to be done, in order; pure."""

    graph: Graph
    done: set[str] = field(default_factory=set)
    running: dict[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = dict(self.graph.tasks)

    @property
    def over(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not (self.waiting or self.running)

    def next(self) -> Task | None:
        """The first task that can be done, rather one that makes nothing another is making."""
        ready = [t for t in self.waiting.values() if self.done.issuperset(t.needs)]
        busy = frozenset[str]().union(*(task.shares for task in self.running.values()))
        chosen = next((t for t in ready if not t.shares & busy), ready[0] if ready else None)
        if chosen:
            self.running[chosen.id] = self.waiting.pop(chosen.id)
        return chosen

    def finish(self, task: Task) -> None:
        """It is done."""
        self.running.pop(task.id, None)
        self.done.add(task.id)

    def fail(self, task: Task) -> list[Task]:
        """It cannot be done: the tasks that are not to be done any more because of it."""
        self.running.pop(task.id, None)
        lost = self.graph.after({task.id})
        return [self.waiting.pop(each) for each in list(self.waiting) if each in lost]

    def again(self, task: Task) -> None:
        """Its process was lost: it goes first."""
        self.running.pop(task.id, None)
        self.waiting = {task.id: task, **self.waiting}


class Local:
    """`workers` processes; each accelerator is leased to one of them."""

    def __init__(self, workers: int, folder: Path, *, accelerators: int = 0) -> None:
        self.workers = workers
        self.folder = folder
        self.accelerators = accelerators
        self._stations: dict[int, Station] = {}
        self._selector = selectors.DefaultSelector()
        self._lost: dict[str, int] = {}

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for slot in list(self._stations):
            self._drop(slot)
        self._selector.close()

    def run(self, graph: Graph, told: Told = unheard) -> Iterator[tuple[Task, Outcome]]:
        """Do all tasks; each that ended, in the order of ending, with what became of it.

        A task that failed is followed by those that waited for it, with the same outcome.
        """
        queue = Queue(graph)
        while not queue.over:
            self._hand_out(queue)
            for slot, message in self._messages():
                yield from self._answer(queue, slot, message, told)

    def _hand_out(self, queue: Queue) -> None:
        for slot in range(self.workers):
            station = self._stations.get(slot)
            if station and station.task:
                continue
            task = queue.next()
            if task is None:
                return
            (station or self._open(slot, task)).begin(task)

    def _open(self, slot: int, task: Task) -> Station:
        log = self.folder / f"station-{slot}-{time.monotonic_ns()}.log"
        station = Station(log, self._environment(slot, task))
        self._stations[slot] = station
        self._selector.register(station.output, selectors.EVENT_READ, slot)
        return station

    def _environment(self, slot: int, task: Task) -> dict[str, str]:
        threads = dict.fromkeys(THREAD_VARIABLES, str(task.threads))
        if not self.accelerators:
            return threads
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = [v for v in visible if v] or [str(i) for i in range(self.accelerators)]
        return {**threads, "CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}

    def _messages(self) -> list[tuple[int, dict[str, Any]]]:
        found = []
        for key, _ in self._selector.select(1.0):
            slot = key.data
            try:
                found += [(slot, message) for message in self._stations[slot].heard()]
            except EOFError:
                found.append((slot, {"gone": True}))
        return found

    def _answer(
        self, queue: Queue, slot: int, message: Mapping[str, Any], told: Told
    ) -> Iterator[tuple[Task, Outcome]]:
        station = self._stations[slot]
        task = station.task
        if "gone" in message:
            words = station.last_words()
            self._drop(slot)
            if task:
                yield from self._lose(queue, task, words)
        elif task and "done" in message:
            station.task = None
            yield from ended(queue, task, Outcome.model_validate(message["done"]))
        elif task and "stage" in message:
            told(task, message["stage"])
        elif task and "progress" in message:
            done, total, note = message["progress"]
            told(task, f"{done}/{total} {note}".strip())

    def _lose(self, queue: Queue, task: Task, words: str) -> Iterator[tuple[Task, Outcome]]:
        count = self._lost[task.id] = self._lost.get(task.id, 0) + 1
        if count < LOST_AT_MOST:
            queue.again(task)
            return
        error = f"the process at work on it was lost {count} times\n{words}"
        yield from ended(queue, task, Outcome(status="failed", error=error, kind="CellFailed"))

    def _drop(self, slot: int) -> None:
        station = self._stations.pop(slot)
        self._selector.unregister(station.output)
        station.close()


def ended(queue: Queue, task: Task, outcome: Outcome) -> Iterator[tuple[Task, Outcome]]:
    """A task's end, and that of all which it takes with it."""
    if outcome.status == "done":
        queue.finish(task)
        yield task, outcome
        return
    yield task, outcome
    for each in queue.fail(task):
        yield each, outcome

"""Tasks on this machine: as many processes as asked for, each doing one step at a time.

Run as a program, this is such a process: it ends when its parent does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from harness.api.errors import HarnessError
from harness.api.plugins import Progress
from harness.running.run import Observer, Step
from harness.sandbox.lines import ChildLines, ParentLines
from harness.sandbox.process import FORK_SERVERS, limited_to, log_tail
from harness.scheduling.queue import Ended, Outcome, Queue, TaskProgress
from harness.scheduling.steps import Graph, Task

PATIENCE = 5.0
"""Seconds that a step may take to notice that it is to end, and its process to end then."""
NOTE_EVERY = 0.5
"""Seconds between two notes on how far a step is."""


class Local:
    """`workers` processes; each accelerator is leased to one of them."""

    def __init__(self, workers: int, folder: Path, *, accelerators: int = 0) -> None:
        self.workers = workers
        self.folder = folder
        self.accelerators = accelerators
        self._open: dict[int, Worker] = {}

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *_error: object) -> None:
        for worker in self._open.values():
            worker.lines.close()
        while self._open:
            self._open.popitem()[1].close()

    def run(self, graph: Graph, progress: TaskProgress) -> Iterator[Ended]:
        """Do all tasks, as an `Engine`."""
        queue = Queue(graph)
        while not queue.over:
            self._hand_out(queue)
            ready = wait([worker.lines.fileno() for worker in self._open.values()], 1.0)
            for slot, worker in list(self._open.items()):
                if worker.lines.fileno() in ready:
                    yield from self._receive(queue, slot, worker, progress)

    def _hand_out(self, queue: Queue) -> None:
        for slot in range(self.workers):
            if slot in self._open and self._open[slot].task:
                continue
            task = queue.next()
            if task is None:
                return
            self._worker(slot, task.threads).begin(task)

    def _worker(self, slot: int, threads: int) -> Worker:
        """The process of a slot; a library counts its threads once, so others need another."""
        if slot in self._open and self._open[slot].threads != threads:
            self._open.pop(slot).close()
        if slot not in self._open:
            log = self.folder / f"worker-{slot}-{time.monotonic_ns()}.log"
            self._open[slot] = Worker(log, threads, self._leased(slot))
        return self._open[slot]

    def _leased(self, slot: int) -> dict[str, str]:
        """The one accelerator that a slot's process sees."""
        if not self.accelerators:
            return {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = [v for v in visible if v] or [str(i) for i in range(self.accelerators)]
        return {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}

    def _receive(
        self, queue: Queue, slot: int, worker: Worker, progress: TaskProgress
    ) -> Iterator[Ended]:
        try:
            messages = worker.lines.receive(0)
        except EOFError:
            self._open.pop(slot).close()
            if worker.task:
                yield from queue.lose(worker.task, log_tail(worker.log.read_bytes()))
            return
        for message in messages:
            task = worker.task
            if task and "done" in message:
                worker.task = None
                yield from queue.end(task, Outcome.model_validate(message["done"]))
            elif task:
                progress(task, message["note"])


class Worker:
    """A process that does steps, each with so many threads."""

    def __init__(self, log: Path, threads: int, environment: Mapping[str, str]) -> None:
        self.log = log
        self.threads = threads
        self.task: Task | None = None
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.scheduling.local"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, **limited_to(threads), **environment},
                start_new_session=True,
            )
        self.lines = ChildLines(self._process.stdin, self._process.stdout)

    def begin(self, task: Task) -> None:
        """Give it a task; one that is gone is noticed when it is listened to."""
        self.task = task
        with contextlib.suppress(BrokenPipeError):
            self.lines.send(step=task.step, options=dict(task.options))

    def close(self) -> None:
        """End the process, by force where it does not end by itself."""
        self.lines.close()
        try:
            self._process.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class NotingObserver(Observer):
    """An observer that puts into words what is being done."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Note that a stage begins, and now and then how far it is."""
        self._note(name)
        last = time.monotonic()

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal last
            if time.monotonic() - last >= NOTE_EVERY:
                last = time.monotonic()
                self._note(f"{name} {done}/{total} {note}".rstrip())

        yield report


def do_step(step: Step, options: dict[str, Any], observer: Observer) -> Outcome:
    """One step of one cell, in this process."""
    from harness.running.run import Run

    try:
        run = Run.open(options, observer=observer)
    except HarnessError as error:
        return Outcome.of(error)
    try:
        if step == "record":
            return Outcome(status="done", record=run.result().id)
        run.advance(step)
        return Outcome(status="done")
    except HarnessError as error:
        return Outcome.of(error)
    finally:
        run.forget()


class Stopped(KeyboardInterrupt):
    """The parent is gone, or wants no more.

    Not a SystemExit: one that comes in the midst of a plugin is the plugin's, and a failed cell.
    """


def _serve() -> None:
    """Do steps until the parent hangs up."""
    parent = ParentLines(_stop)
    parent.listen()
    import torch  # noqa: F401  before the first order comes

    observer = NotingObserver(lambda words: parent.send(note=words))
    with FORK_SERVERS.kept():
        while True:
            done = do_step(**parent.receive(), observer=observer)
            parent.send(done=done.model_dump(mode="json"))


def _stop() -> None:
    """End whatever is being done; by force where that does not help."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_signal)
    try:
        _serve()
    except (Stopped, BrokenPipeError):
        sys.exit(0)

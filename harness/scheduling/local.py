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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.sandbox.starting import THREAD_VARIABLES
from harness.scheduling.outcome import Outcome
from harness.scheduling.queue import Ended, Queue, Told, unheard
from harness.scheduling.steps import Graph, Task

LOG_LINES = 12
PATIENCE = 10.0
"""Seconds that a process may take to end by itself."""


class Station:
    """One process that does steps, each with so many threads."""

    def __init__(self, log: Path, threads: int, environment: Mapping[str, str]) -> None:
        self.log = log
        self.threads = threads
        self.task: Task | None = None
        self._file = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.scheduling.station"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads)), **environment},
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

    def dismiss(self) -> None:
        """Tell the process to end, and what it started."""
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End the process, by force where it does not end by itself."""
        self.dismiss()
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


class Local:
    """`workers` processes; each accelerator is leased to one of them."""

    def __init__(self, workers: int, folder: Path, *, accelerators: int = 0) -> None:
        self.workers = workers
        self.folder = folder
        self.accelerators = accelerators
        self._stations: dict[int, Station] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for station in self._stations.values():
            station.dismiss()
        for slot in list(self._stations):
            self._drop(slot)
        self._selector.close()

    def run(self, graph: Graph, told: Told = unheard) -> Iterator[Ended]:
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
            self._station(slot, task.threads).begin(task)

    def _station(self, slot: int, threads: int) -> Station:
        """The process of a slot; a library counts its threads once, so others need another."""
        if slot in self._stations and self._stations[slot].threads != threads:
            self._drop(slot)
        if slot not in self._stations:
            log = self.folder / f"station-{slot}-{time.monotonic_ns()}.log"
            station = Station(log, threads, self._leased(slot))
            self._stations[slot] = station
            self._selector.register(station.output, selectors.EVENT_READ, slot)
        return self._stations[slot]

    def _leased(self, slot: int) -> dict[str, str]:
        """The one accelerator that a slot's process sees."""
        if not self.accelerators:
            return {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        devices = [v for v in visible if v] or [str(i) for i in range(self.accelerators)]
        return {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}

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
    ) -> Iterator[Ended]:
        station = self._stations[slot]
        task = station.task
        if "gone" in message:
            words = station.last_words()
            self._drop(slot)
            if task:
                yield from queue.lose(task, words)
        elif task and "done" in message:
            station.task = None
            yield from queue.end(task, Outcome.model_validate(message["done"]))
        elif task and "note" in message:
            told(task, message["note"])

    def _drop(self, slot: int) -> None:
        station = self._stations.pop(slot)
        self._selector.unregister(station.output)
        station.close()

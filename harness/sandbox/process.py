"""The parent's side of an attack's process: start it, ask it, watch it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psutil

from harness.api.errors import CellFailed, CellTimedOut, NotApplicable
from harness.api.plugins import Progress
from harness.api.view import Budget
from harness.sandbox.starting import LOG_LINES, NURSERIES, START_SECONDS, Started, alone

LOOK_EVERY = 0.2


@dataclass(frozen=True)
class Spent:
    """What one job took."""

    seconds: float
    megabytes: float


class AttackProcess:
    """A fresh process that has imported torch and waits for one attack's jobs.

    `start` makes it, with a file for its log and a number of threads.
    """

    def __init__(
        self, log: Path, threads: int, start: Callable[[IO[bytes], int], Started] = alone
    ) -> None:
        self.log = log
        self._file = log.open("wb")
        self._process = start(self._file, threads)
        self._buffer = b""
        self._peak = 0.0
        self._ready = False

    def __enter__(self) -> AttackProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started, in sessions of their own too."""
        with contextlib.suppress(CellFailed):  # one that never came to be
            self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._file):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _kill(self) -> None:
        if not self._process.born:
            return
        family = self._family()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def ask(
        self, job: Mapping[str, Any], budget: Budget, progress: Progress, *, spent: float = 0.0
    ) -> Spent:
        """Run one job to its end; CellFailed or CellTimedOut, with the log's tail, if it fails.

        `spent` seconds of the budget are gone already.
        """
        self._write(job)
        left = budget.seconds - spent
        deadline = time.monotonic() + left + (0 if self._ready else START_SECONDS)
        while True:
            for message in self._messages():
                if "ready" in message:
                    self._ready = True
                    deadline = time.monotonic() + left
                elif "progress" in message:
                    progress(*message["progress"])
                elif "error" in message:
                    raise self._failure(message)
                elif "done" in message:
                    return Spent(message["seconds"], max(message["peak_mb"], self._peak))
            self._watch(deadline, budget)

    def _failure(self, message: Mapping[str, Any]) -> CellFailed:
        """What the attack raised: its own sentence as it is, anything else with the log's tail."""
        if message.get("kind") == NotApplicable.__name__:
            return NotApplicable(message["error"])
        if "kind" in message:
            return CellFailed(f"{message['kind']}: {message['error']}")
        return CellFailed(self._with_log(message["error"]))

    def _write(self, job: Mapping[str, Any]) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CellFailed(self._with_log(self._death())) from None

    def _messages(self) -> list[dict[str, Any]]:
        """What has come since the last look, waiting a moment for it."""
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(LOOK_EVERY):
                return []
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        if not data:
            raise CellFailed(self._with_log(self._death()))
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def _watch(self, deadline: float, budget: Budget) -> None:
        if time.monotonic() > deadline:
            raise CellTimedOut(
                self._with_log(f"the attack did not end within {budget.seconds:g} s")
            )
        used = self._resident_megabytes()
        self._peak = max(self._peak, used)
        if used > budget.megabytes:
            raise CellFailed(
                self._with_log(f"the attack used more than its limit of {budget.megabytes} MB")
            )

    def _family(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _resident_megabytes(self) -> float:
        try:
            used = sum(float(process.memory_info().rss) for process in self._family())
        except psutil.Error:
            return 0.0
        return used / 2**20

    def _death(self) -> str:
        code = self._process.wait()
        if code is None:
            return self._process.why
        if code < 0:
            return f"the attack's process was killed by {signal.Signals(-code).name}"
        return f"the attack's process ended with exit code {code}"

    def _with_log(self, message: str) -> str:
        tail = log_tail(self.log)
        return f"{message}\n{tail}" if tail else message


def log_tail(path: Path) -> str:
    """The last lines of a log, whatever its bytes."""
    lines = path.read_bytes().decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-LOG_LINES:])


class Workers:
    """Attack processes; while more are `expected`, one is started ahead of its time."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._threads = threads
        self._spare: AttackProcess | None = None
        self._count = 0
        self._kept = ExitStack()
        self._kept.enter_context(NURSERIES.kept())
        self.expected = 0

    def warm(self) -> None:
        """Start the next process now, so that importing torch costs nobody a wait."""
        if self._spare is None:
            self._count += 1
            self.expected -= 1
            log = self._folder / f"worker-{self._count}.log"
            self._spare = AttackProcess(log, self._threads, NURSERIES.start)

    def take(self) -> AttackProcess:
        """A fresh process, for one attack."""
        self.warm()
        taken, self._spare = self._spare, None
        assert taken is not None
        if self.expected > 0:
            self.warm()
        return taken

    def close(self) -> None:
        """End the spare one, and what started them unless others use it."""
        if self._spare:
            self._spare.close()
            self._spare = None
        self._kept.close()

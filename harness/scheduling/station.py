"""A process that does steps for a local engine: one JSON line in, JSON lines out.

It ends when its parent does: a closed standard input is a parent that is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, TextIO

from harness.api.errors import HarnessError
from harness.api.plugins import Progress
from harness.running.run import Observer, Step
from harness.sandbox.starting import NURSERIES
from harness.scheduling.outcome import Outcome, outcome_of

OFTEN = 0.5
"""Seconds between two words on how far a step is."""
PATIENCE = 5.0
"""Seconds that a step may take to notice that it is to end."""


class Dismissed(KeyboardInterrupt):
    """The parent is gone, or wants no more.

    Not a SystemExit: one that comes in the midst of a plugin is the plugin's, and a failed cell.
    """


class Telling(Observer):
    """An observer that puts into words what is being done."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Say that a stage begins, and now and then how far it is."""
        self._say(name)
        last = time.monotonic()

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal last
            if time.monotonic() - last >= OFTEN:
                last = time.monotonic()
                self._say(f"{name} {done}/{total} {note}".rstrip())

        yield report


def do(step: Step, options: dict[str, Any], observer: Observer) -> Outcome:
    """One step of one cell, in this process."""
    from harness.running.run import Run

    started = time.perf_counter()
    try:
        if step == "record":
            record = Run.open(options, observer=observer).result()
            made = Outcome(status="done", record=record.id)
        else:
            Run.open(options, observer=observer).advance(step)
            made = Outcome(status="done")
    except HarnessError as error:
        made = outcome_of(error)
    return made.model_copy(update={"seconds": round(time.perf_counter() - started, 3)})


def main() -> None:
    """Serve until the parent is gone."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a plugin prints goes to the log, not between our lines
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    import torch  # noqa: F401  before the first order comes

    with NURSERIES.kept():
        while True:
            order = orders.get()
            done = do(order["step"], order["options"], Telling(partial(_note, out)))
            _tell(out, done=done.model_dump(mode="json"))


def _note(out: TextIO, words: str) -> None:
    _tell(out, note=words)


def _tell(out: TextIO, **message: Any) -> None:
    """One line to the parent."""
    out.write(json.dumps(message) + "\n")
    out.flush()


def _listen(orders: SimpleQueue[dict[str, Any]]) -> None:
    """Pass orders on; once there are no more to come, end whatever is being done."""
    for line in sys.stdin:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


def _dismiss(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Dismissed


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _dismiss)
    try:
        main()
    except (Dismissed, BrokenPipeError):
        sys.exit(0)

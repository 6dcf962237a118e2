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
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TextIO

from harness.api.errors import HarnessError
from harness.api.plugins import Progress
from harness.engines.observer import Observer
from harness.engines.outcome import Outcome, outcome_of
from harness.engines.steps import Step

OFTEN = 0.5
"""Seconds between two words on how far a step is."""


class Telling(Observer):
    """An observer that tells the parent."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """Say that a stage begins, and now and then how far it is."""
        tell(self._out, stage=name)
        last = time.monotonic()

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal last
            if time.monotonic() - last >= OFTEN:
                last = time.monotonic()
                tell(self._out, progress=[done, total, note])

        yield report


def tell(out: TextIO, **message: Any) -> None:
    """One line to the parent."""
    out.write(json.dumps(message) + "\n")
    out.flush()


def do(step: Step, options: dict[str, Any], observer: Observer) -> Outcome:
    """One step of one cell, in this process."""
    from harness.evaluation import advance, evaluate

    started = time.perf_counter()
    try:
        if step == "record":
            record = evaluate(observer=observer, **options)
            made = Outcome(status="done", record=record.id)
        else:
            advance(step, observer=observer, **options)
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

    tell(out, ready=True)
    while True:
        order = orders.get()
        done = do(order["step"], order["options"], Telling(out))
        tell(out, done=done.model_dump(mode="json"))


def _listen(orders: SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()

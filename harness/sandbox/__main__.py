"""What runs in the attack's process: jobs come in on stdin, replies go out on stdout.

The process is started fresh, or forked from a `nursery` that was, and has never held the truth.
Whatever a plugin prints lands in the log; when the parent goes away, stdin ends and the process
with it.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from harness.api.errors import HarnessError

REPORT_EVERY = 0.1


def main() -> None:
    """Serve jobs until the parent hangs up."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs = _listen(_keep_stdin())
    import torch

    torch.set_deterministic_debug_mode("warn")
    _send(replies, ready=True)
    while (job := jobs.get()) is not None:
        _serve(job, replies)


def _keep_stdin() -> TextIO:
    """Jobs come in here; a plugin that reads standard input meets its end, not them."""
    kept = os.fdopen(os.dup(sys.stdin.fileno()))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return kept


def _listen(lines: TextIO) -> queue.Queue[dict[str, Any] | None]:
    """Read jobs on a thread of their own, so that a hang-up ends a busy process too."""
    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def listen() -> None:
        for line in lines:
            jobs.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return jobs


def _send(replies: TextIO, **message: Any) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _serve(job: dict[str, Any], replies: TextIO) -> None:
    started = time.perf_counter()
    try:
        _run(job, _reporter(replies))
    except HarnessError as error:  # a sentence, not a fault: nobody needs to see where it came from
        _send(replies, error=str(error), kind=type(error).__name__)
        return
    except Exception as error:  # noqa: BLE001  the one place where a plugin may raise anything
        traceback.print_exc()
        sys.stderr.flush()
        _send(replies, error=f"{type(error).__name__}: {error}")
        return
    sys.stderr.flush()
    _send(replies, done=True, seconds=time.perf_counter() - started, peak_mb=_peak_megabytes())


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _reporter(replies: TextIO) -> Callable[..., None]:
    """A `Progress` that sends no more than a few messages a second."""
    last = 0.0

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if done >= total or now - last >= REPORT_EVERY:
            last = now
            _send(replies, progress=[int(done), int(total), str(note)])

    return report


def _run(job: dict[str, Any], report: Callable[..., None]) -> None:
    from harness.sandbox.jobs import call, prepare, reconstruct, share

    actions = {"share": share, "prepare": prepare, "reconstruct": reconstruct, "call": call}
    actions[job["action"]](job, report)


if __name__ == "__main__":
    main()

"""What runs in an attack's or a learner's process: jobs come in on stdin, replies go out on stdout.

The process is started fresh, or forked from one that was, and has never held the truth. Whatever
a plugin prints lands in the log; when the parent goes away, stdin ends and the process with it.

With a socket's number as its argument this is a fork server: a process that has imported torch,
and whose children serve attacks without doing so again. It knows nothing but that one more child
is wanted: it reads no view and loads no plugin, so that what its children begin with is torch as
imported. Each child is a process of its own, in a session of its own.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from harness.api.errors import HarnessError
from harness.sandbox.jail import adopt, confine
from harness.sandbox.lines import ParentLines
from harness.sandbox.reach import devices, places, readable

Action = Callable[[dict[str, Any], Callable[..., None]], None]

REPORT_EVERY = 0.1
STREAMS = 4
"""Handed over for each child: its stdin, stdout and log, and where its exit code is asked for."""


def serve() -> None:
    """Do jobs until the parent hangs up, within the walls that it names first."""
    parent = ParentLines(partial(os._exit, 0))
    import torch

    torch.set_deterministic_debug_mode("warn")
    parent.send(ready=os.getpid())
    try:
        parent.send(walls=_confined(**parent.first()))
    except OSError as error:
        parent.send(error=str(error))
        return
    parent.listen()
    actions: dict[str, Action] = {}
    while True:
        _answer(parent.receive(), parent, actions)


def _confined(
    apart: str = "", reads: Sequence[str] = (), writes: Sequence[str] = ()
) -> dict[str, Any]:
    """How this process is confined from here on; where nothing is told it is not."""
    if not apart:
        return {}
    os.environ["TMPDIR"] = writes[0]
    return asdict(confine([*readable(Path(apart)), *reads], [*writes, *devices()]))


def _actions(parent: ParentLines) -> dict[str, Action]:
    from harness.sandbox.jobs import call, prepare, reconstruct, share
    from harness.sandbox.lessons import Pupil

    pupil = Pupil(parent.fetch)
    attacking: dict[str, Action] = {"share": share, "prepare": prepare, "reconstruct": reconstruct}
    return {**attacking, "call": call, "learn": pupil.learn, "classify": pupil.classify}


def _answer(job: dict[str, Any], parent: ParentLines, actions: dict[str, Action]) -> None:
    """Do a job and say how it ended; what can be done is looked up when the first one comes."""
    try:
        actions.update(actions or _actions(parent))
        actions[job["action"]](job, _reporter(parent))
    except HarnessError as error:  # a sentence, not a fault: nobody needs to see where it came from
        parent.send(error=str(error), kind=type(error).__name__)
        return
    except Exception as error:  # noqa: BLE001  the one place where a plugin may raise anything
        traceback.print_exc()
        sys.stderr.flush()
        parent.send(error=f"{type(error).__name__}: {error}")
        return
    sys.stderr.flush()
    parent.send(done=True, peak_mb=_peak_megabytes())


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _reporter(parent: ParentLines) -> Callable[..., None]:
    """A `Progress` that sends no more than a few messages a second."""
    last = 0.0

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if done >= total or now - last >= REPORT_EVERY:
            last = now
            parent.send(progress=[int(done), int(total), str(note)])

    return report


def serve_forked(number: int) -> None:
    """Fork a child for each order that comes, until the parent hangs up; a child serves jobs."""
    import torch  # noqa: F401  for all of them

    from harness.sandbox import jobs  # noqa: F401  likewise

    places()  # likewise
    adopt()

    with socket.socket(fileno=number) as orders:
        is_child = _fork_on_order(orders)
    if is_child:
        serve()


def _fork_on_order(orders: socket.socket) -> bool:
    """True in a child; False once no more are wanted."""
    children: dict[int, int] = {}
    while True:
        for asked in wait([orders.fileno(), *children]):
            if asked in children:
                _tell_exit_code(asked, children.pop(asked), children.values())
                continue
            order, streams, *_ = socket.recv_fds(orders, 1, STREAMS)
            if not order:
                return False
            *standard, asks = streams
            children[asks] = os.fork()
            if not children[asks]:
                _close(children)
                _settle(standard)
                return True
            _close(standard)


def _tell_exit_code(asked: int, child: int, others: Collection[int]) -> None:
    """Wait for a child's end if the parent asks for it; it hangs up where it does not care.

    What the child started and did not take along ends with it.
    """
    if os.read(asked, 1):
        _, status = os.waitpid(child, 0)
        _end_orphans(others)
        with suppress(BrokenPipeError):
            os.write(asked, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(asked)


def _end_orphans(others: Collection[int]) -> None:
    """End every child that is none of `others`: each was a child's, which is gone."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    while orphans := {int(each) for each in listed.read_text().split()} - {*others}:
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)


def _close(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)


def _settle(streams: list[int]) -> None:
    """Make these the standard streams, and the process the first of its session."""
    os.setsid()
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        serve_forked(int(arguments[0]))
    else:
        serve()

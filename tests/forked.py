"""Commands in processes of their own, forked from one that has imported what they need.

Most commands take less time than importing torch, SciPy, Matplotlib and the harness itself. A
forked one has an environment, a folder, a path and streams of its own, as one that was started;
only its imports have been done before. What imports what is tested with commands that are started.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from multiprocessing import connection
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "safetensors.torch", "scipy.optimize", "scipy.stats", "matplotlib.figure")
LONGEST_ORDER = 1 << 17


class Forked:
    """A command at work, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path):
        """Start Python with these arguments: `-m module …`, `-c text …` or `file …`."""
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._status, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            order = json.dumps([list(arguments), dict(environment), str(folder)]).encode()
            streams = [self._out.fileno(), self._err.fileno(), theirs.fileno()]
            socket.send_fds(_orders(), [order], streams)
        self.pid = int(self._status.recv(16))
        self.returncode: int | None = None

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_error: object) -> None:
        self.wait()
        self._out.close()
        self._err.close()

    def poll(self) -> int | None:
        """Its exit code, or None while it is at work."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            if not connection.wait([self._status], timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int(self._status.recv(16))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it had written on both streams when it ended."""
        self.wait(timeout)
        for file in (self._out, self._err):
            file.seek(0)
        with self:
            return self._out.read().decode(), self._err.read().decode()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def fork(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Forked | subprocess.Popen[str]:
    """Python with these arguments; where torch does not bear being forked, it is started."""
    if sys.platform == "linux":
        return Forked(arguments, environment, folder)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, text=True, env=environment, cwd=folder, **pipes)


@cache
def _orders() -> socket.socket:
    """Where the process that forks is told to; it is started by the first order."""
    orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(server.wait)
    atexit.register(orders.close)
    return orders


def _serve(orders: socket.socket) -> list[Any]:
    """Fork a child for each order and tell how each ended; in a child, what it is to run."""
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready in connection.wait([orders, *children]):
            if isinstance(ready, int):
                child, status = children.pop(ready)
                _tell(status, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                os.close(ready)
                os.close(status)
                continue
            order, streams, *_ = socket.recv_fds(orders, LONGEST_ORDER, 3)
            if not order:
                os._exit(0)
            out, err, status = streams
            if not (child := os.fork()):
                os.dup2(out, 1)
                os.dup2(err, 2)
                return list(json.loads(order))
            os.close(out)
            os.close(err)
            _tell(status, child)
            children[os.pidfd_open(child)] = child, status


def _tell(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it
        os.write(status, str(number).encode())


def _run(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """What `python` does with these arguments."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    added = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0:1] = [folder, *(path for path in added if path)]
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", text, *rest]:
            sys.argv = ["-c", *rest]
            exec(text, {"__name__": "__main__"})
        case [path, *_]:
            sys.argv = arguments
            sys.path[0] = str(Path(path).parent)
            runpy.run_path(path, run_name="__main__")


def _prepare() -> None:
    """Import what commands import; without torch, what can be."""
    import harness.cli

    commands = [f"harness.cli.{each.name}" for each in pkgutil.iter_modules(harness.cli.__path__)]
    plugins = [entry.module for entry in entry_points(group="harness.plugins")]
    for name in (*LIBRARIES, *commands, "harness.running.run", *plugins):
        with suppress(ImportError):
            import_module(name)


def _serve_and_run(number: int) -> int:
    """The exit code of a command, in its process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run in the background may be told to ignore it
    _prepare()
    gc.freeze()  # or each child's collections would copy what all of them have in common
    with socket.socket(fileno=number) as orders:
        asked = _serve(orders)
    try:
        _run(*asked)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


if __name__ == "__main__":
    code = _serve_and_run(int(sys.argv[1]))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)  # taking all that was imported apart takes half a second

"""How an attack's process comes to be: as a child of a nursery, or by itself.

A nursery is for Linux: elsewhere a process that has imported torch cannot be forked safely, and
each attack's process imports it anew.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import IO, Protocol

from harness.api.errors import CellFailed

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
START_SECONDS = 120.0
"""How long a process may take to import torch; an attack's own time begins after that."""
LOG_LINES = 12
GONE = "the process that starts attacks' processes is gone"


class Started(Protocol):
    """A process: its number, its streams, and how it ends.

    `why` says why nobody knows how, where nobody does.
    """

    why: str

    @property
    def born(self) -> bool:
        """Whether it has come to be; one that has not ends by itself once its pipes are closed."""
        ...

    @property
    def pid(self) -> int:
        """Its number; CellFailed where it never came to be."""
        ...

    @property
    def stdin(self) -> IO[bytes] | None:
        """Where it hears."""
        ...

    @property
    def stdout(self) -> IO[bytes] | None:
        """Where it speaks."""
        ...

    def wait(self) -> int | None:
        """Wait for its end; the exit code, negative for a signal, None if nobody knows."""
        ...


class Alone(subprocess.Popen[bytes]):
    """A process of one's own: it is there at once, and how it ended is known."""

    born = True
    why = ""


def alone(log: IO[bytes], threads: int) -> Started:
    """A process that imports all it needs by itself."""
    return Alone(
        [sys.executable, "-m", "harness.sandbox"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(threads),
        start_new_session=True,
    )


class Child:
    """A child of a nursery."""

    def __init__(self, nursery: Nursery, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._nursery = nursery
        self.stdin = stdin
        self.stdout = stdout
        self.number: int | None = None
        self.why = GONE
        self._code: int | None = None

    @property
    def born(self) -> bool:
        """Whether the nursery has said so."""
        self._nursery.name_children(wait=False)
        return self.number is not None

    @property
    def pid(self) -> int:
        """Its number; CellFailed where the nursery is gone before it was born."""
        if self.number is None:
            self._nursery.name_children()
        assert self.number is not None
        return self.number

    def wait(self) -> int | None:
        """Its exit code, once it has one; None where the nursery is gone."""
        if self._code is None:
            try:
                self._code = self._nursery.wait(self.pid)
            except CellFailed as error:
                self.why = str(error)
        return self._code


class Nursery:
    """A process that has imported torch with so many threads, and starts others at once."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = RLock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the nursery
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.sandbox.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=_environment(threads),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._orders.settimeout(START_SECONDS)
        self._unnamed: deque[Child] = deque()

    @property
    def alive(self) -> bool:
        """Whether it can start another."""
        return self._process.poll() is None and self._orders.fileno() >= 0

    def close(self) -> None:
        """End it; its children are none of its business."""
        self._orders.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    def start(self, log: IO[bytes]) -> Started:
        """One more child, which writes to `log`; it comes when torch is imported."""
        (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
        child = Child(self, os.fdopen(our_in, "wb"), os.fdopen(our_out, "rb"))
        with self._lock:
            with contextlib.suppress(OSError):  # one that is gone is noticed by what is missing
                socket.send_fds(self._orders, [b"start"], [their_in, their_out, log.fileno()])
            for handle in (their_in, their_out):
                os.close(handle)
            self._unnamed.append(child)
        return child

    def name_children(self, *, wait: bool = True) -> None:
        """Hear the numbers of all that were ordered, or of those that have come to be."""
        with self._lock:
            while self._unnamed and (wait or self._speaks()):
                self._unnamed[0].number = self._answer()
                self._unnamed.popleft()

    def wait(self, child: int) -> int:
        """The exit code of a child, once it has ended."""
        with self._lock:
            self.name_children()
            with contextlib.suppress(OSError):
                self._orders.send(str(child).encode())
            return self._answer()

    def _speaks(self) -> bool:
        """Whether there is an answer, or an end, to be heard at once."""
        return self._orders.fileno() >= 0 and bool(select.select([self._orders], [], [], 0)[0])

    def _answer(self) -> int:
        lost = GONE
        try:
            said = self._orders.recv(64)
        except TimeoutError:
            said, lost = b"", f"no process could be started within {START_SECONDS:g} s"
        except OSError:
            said = b""
        if not said:  # an answer that comes later would be taken for that to another question
            self._orders.close()
            raise CellFailed(f"{lost}\n{self._last_words()}".rstrip())
        return int(said)

    def _last_words(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-LOG_LINES:])


class Nurseries:
    """The nurseries of this process, by their number of threads; gone with their last user."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._users = 0
        self._open: dict[int, Nursery] = {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is started meanwhile for all that comes until the end."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._close()

    def _close(self) -> None:
        for nursery in self._open.values():
            nursery.close()
        self._open.clear()

    def start(self, log: IO[bytes], threads: int) -> Started:
        """An attack's process, of a nursery where there can be one."""
        if sys.platform != "linux":
            return alone(log, threads)
        with self._lock:
            found = self._open.get(threads)
            if found and not found.alive:
                found.close()
            if found is None or not found.alive:
                found = self._open[threads] = Nursery(threads)
        return found.start(log)


NURSERIES = Nurseries()


def _environment(threads: int) -> dict[str, str]:
    """The parent's environment, with bounded threads and without what names the owner's side."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HARNESS_")}
    return {**inherited, **dict.fromkeys(THREAD_VARIABLES, str(threads))}

"""The parent's side of an attack's process: start it, ask it, watch it, end it.

On Linux it is forked from one that has imported torch: elsewhere such a process cannot be forked
safely, and each attack's process imports torch anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

import psutil
from pydantic import BaseModel, FiniteFloat, ValidationError

from harness.api.errors import CellFailed, CellTimedOut, MachineFault, NotApplicable
from harness.api.plugins import Progress
from harness.api.view import Budget
from harness.asking.registry import REFUSED
from harness.sandbox.jail import UNCONFINED
from harness.sandbox.lines import ChildLines, Garbled
from harness.store.paths import cache_root

if TYPE_CHECKING:
    from harness.sandbox.feed import Feed, Giver

"""The environment variable that leaves plugins the whole machine; records then say so."""
LOOK_EVERY = 0.2
START_SECONDS = 120.0
"""How long a process may take to import torch; an attack's own time begins after that."""
LOG_LINES = 12
LOG_BYTES, LONGEST_LOG = 1 << 16, 1 << 28
"""Of a log, how much of its end is read, and how long it may become."""
MOST_PROCESSES = 64
"""That one attack may have at once."""
LONGEST_ERROR = 1 << 14
PATIENCE = 10
"""How many times its budget one may wait for rounds that it asks for, and for a processor."""
NAMES = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CI", "COLUMNS", REFUSED}
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE"}
)
SECRET = ("KEY", "TOKEN", "SECRET", "PASS")
FAMILIES = (
    *("LC_", "LD_", "PYTHON", "OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "ATEN_"),
    *("TORCH", "PYTORCH_", "CUDA", "CUBLAS_", "HIP_", "ROCR_", "NUMEXPR_", "MALLOC_"),
)
"""Environment variables that decide how numbers are computed, and no others, are handed on."""
GONE = "the process that starts attacks' processes is gone"


def limited_to(threads: int) -> dict[str, str]:
    """Environment variables that bound the threads of a process's libraries."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def end_of(log: Path) -> str:
    """The last lines of a log, however long it is."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        return log_tail(file.read())


def log_tail(log: bytes) -> str:
    """The last lines of a log, whatever its bytes."""
    lines = log.decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-LOG_LINES:])


def _environment(threads: int) -> dict[str, str]:
    """What of the parent's environment libraries heed, with bounded threads: nothing secret."""
    heeded = {
        name: value
        for name, value in os.environ.items()
        if (name in NAMES or name.startswith(FAMILIES)) and not any(s in name for s in SECRET)
    }
    return {**heeded, **limited_to(threads)}


class Forked:
    """A process that a fork server was asked for; it says its number once it is there.

    `status` is where its exit code is asked for, `log` that of the fork server.
    """

    def __init__(
        self, stdin: IO[bytes], stdout: IO[bytes], status: socket.socket, log: IO[bytes]
    ) -> None:
        self.stdin, self.stdout = stdin, stdout
        self.pid: int | None = None
        self.returncode: int | None = None
        status.settimeout(START_SECONDS)
        self._status = status
        self._log = log

    def wait(self) -> int:
        """Its exit code, once it has one; MachineFault where the fork server is gone."""
        if self.returncode is None:
            said = b""
            with self._status, contextlib.suppress(OSError):
                self._status.send(b"?")
                said = self._status.recv(8)
            if not said:
                words = b""
                if not self._log.closed:
                    self._log.seek(0)
                    words = self._log.read()
                raise MachineFault(f"{GONE}\n{log_tail(words)}".rstrip())
            self.returncode = int(said)
        return self.returncode

    def close(self) -> None:
        """Let nobody ask for its exit code any more."""
        self._status.close()


class ForkServer:
    """A process that has imported torch with so many threads, and forks others at once."""

    def __init__(self, threads: int) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the server
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.sandbox", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=_environment(threads),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def close(self) -> None:
        """End it; its children go on."""
        self._orders.close()
        self.process.kill()
        self.process.wait()
        self._log.close()

    def fork(self, log: IO[bytes]) -> Forked:
        """One more process, which writes to `log`; it comes when torch is imported."""
        (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
        status, theirs = socket.socketpair()
        streams = [their_in, their_out, log.fileno(), theirs.fileno()]
        with contextlib.suppress(OSError):  # one that is gone is noticed by what is missing
            socket.send_fds(self._orders, [b"1"], streams)
        for handle in (their_in, their_out):
            os.close(handle)
        theirs.close()
        return Forked(os.fdopen(our_in, "wb"), os.fdopen(our_out, "rb"), status, self._log)


class ForkServers:
    """The fork servers of this process, by their number of threads; gone with their last user."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._open: dict[int, ForkServer] = {}

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
                while not self._users and self._open:
                    self._open.popitem()[1].close()

    def start(self, log: IO[bytes], threads: int) -> Forked | subprocess.Popen[bytes]:
        """An attack's process, forked where it can be."""
        if sys.platform != "linux":
            return alone(log, threads)
        with self._lock:
            if threads in self._open and self._open[threads].process.poll() is not None:
                self._open.pop(threads).close()
            if threads not in self._open:
                self._open[threads] = ForkServer(threads)
            return self._open[threads].fork(log)


FORK_SERVERS = ForkServers()


def alone(log: IO[bytes], threads: int) -> Forked | subprocess.Popen[bytes]:
    """An attack's process that imports all it needs by itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness.sandbox"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(threads),
        start_new_session=True,
    )


class Said(BaseModel, frozen=True, extra="forbid", strict=True):
    """A message from a process, as far as it is one."""

    ready: int | None = None
    walls: dict[str, int | bool] | None = None
    progress: tuple[int, int, str] | None = None
    wanted: tuple[int, int] | None = None
    error: str | None = None
    kind: str = ""
    done: bool = False
    peak_mb: FiniteFloat = 0.0


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
        self,
        log: Path,
        threads: int,
        start: Callable[[IO[bytes], int], Forked | subprocess.Popen[bytes]] = alone,
    ) -> None:
        self.log = log
        self._file = log.open("wb")
        self._process = start(self._file, threads)
        self._lines = ChildLines(self._process.stdin, self._process.stdout)
        self._peak = 0.0
        self._cpu_before = 0.0
        self._ready = self._told = False
        self.walls: dict[str, Any] = {}
        """How it is confined, once it has done a job."""
        self._who = "the attack"
        self._threads = threads

    def __enter__(self) -> AttackProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and hang up.

        One that is not there yet ends by itself, once nobody is at the other end of its pipes.
        """
        self._end()
        self._lines.close()
        if isinstance(self._process, Forked):
            self._process.close()
        self._file.close()

    def _end(self) -> None:
        """End the process and everything it started, in sessions of their own too."""
        if self._process.pid is not None:
            family = self._family()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            with contextlib.suppress(MachineFault):
                self._process.wait()

    def confine(self, reads: Iterable[Path], writes: Iterable[Path]) -> None:
        """Leave it these folders of its own, besides what Python needs, and no other process.

        It counts from its first job on; one that is not confined by then never is. Where
        `HARNESS_UNCONFINED` is set it stays as it is, and says so.
        """
        if os.environ.get(UNCONFINED):
            return
        told = {"reads": [*map(str, reads)], "writes": [*map(str, writes)]}
        self._tell(apart=str(cache_root()), **told)

    def _tell(self, **told: Any) -> None:
        self._told = True
        with contextlib.suppress(BrokenPipeError):  # its end is noticed when it is listened to
            self._lines.send(**told)

    def ask(
        self,
        job: Mapping[str, Any],
        budget: Budget,
        progress: Progress,
        *,
        spent: float = 0.0,
        who: str = "the attack",
        feed: Feed | None = None,
    ) -> Spent:
        """Run one job to its end; CellFailed or CellTimedOut, with the log's tail, if it fails.

        MachineFault where there is no process to run it, by no fault of the job's.
        `spent` seconds of the budget are gone already; messages name `who` was asked. A job that
        reads a release is fed from `feed`. What it waits for pieces, and while others have the
        machine, is no time of its own, for `PATIENCE` times its budget.
        """
        self._who = who
        if not self._told:
            self._tell()
        if not self._ready:
            self._await()
        with contextlib.suppress(BrokenPipeError):  # its end is noticed when it is listened to
            self._lines.send(**job)
        if feed is None:
            return self._listened(budget, progress, spent, None)
        from harness.sandbox.feed import Giver

        with Giver(feed, self._lines) as giver:
            try:
                return self._listened(budget, progress, spent, giver)
            except BaseException:
                self._end()  # or the giver may wait for ever for someone to read its answer
                raise

    def _listened(
        self, budget: Budget, progress: Progress, spent: float, giver: Giver | None
    ) -> Spent:
        """Hear what it says until it is done."""
        began, delayed = time.monotonic(), self._delayed()

        def worked() -> float:
            """Seconds that count: neither its owner nor the machine kept it waiting then."""
            kept = giver.waited if giver else 0.0
            passed = time.monotonic() - began
            if passed - kept > budget.seconds - spent:  # asked only where it decides
                kept += self._delayed() - delayed
            return passed - min(kept, PATIENCE * budget.seconds)

        while True:
            for said in self._received():
                if said.progress is not None:
                    progress(*said.progress)
                elif said.error is not None:
                    raise self._failure(said)
                elif said.wanted is not None and giver:
                    giver.give(*said.wanted)
                elif said.done:
                    return Spent(worked(), max(said.peak_mb, self._peak))
                else:
                    raise self._garbled()
            if giver:
                giver.check()
            self._watch(spent + worked(), budget)

    def _await(self) -> None:
        """Wait until it says that it has imported torch, and its number."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready:
            for said in self._received():
                if said.error is not None:
                    raise MachineFault(said.error)
                self._process.pid = said.ready or self._process.pid
                if said.walls is not None:
                    self.walls, self._ready = said.walls, True
            if time.monotonic() > deadline:
                started = f"no process could be started within {START_SECONDS:g} s"
                raise MachineFault(self._with_log(started))
        self._cpu_before = self._cpu_seconds()

    def _failure(self, said: Said) -> CellFailed:
        """What the attack raised: its own sentence as it is, anything else with the log's tail."""
        error = str(said.error)[:LONGEST_ERROR]
        if said.kind == NotApplicable.__name__:
            return NotApplicable(error)
        if said.kind:
            return CellFailed(f"{said.kind}: {error}")
        return CellFailed(self._with_log(error))

    def _received(self) -> list[Said]:
        """What has come since the last look, waiting a moment for it."""
        try:
            return [Said.model_validate_json(line) for line in self._lines.lines(LOOK_EVERY)]
        except EOFError:
            raise CellFailed(self._with_log(self._death())) from None
        except (Garbled, ValidationError):
            raise self._garbled() from None

    def _garbled(self) -> CellFailed:
        return CellFailed(
            self._with_log(f"{self._who} wrote into the pipe that its process answers by")
        )

    def _watch(self, worked: float, budget: Budget) -> None:
        if worked > budget.seconds:
            raise CellTimedOut(self._with_log(self._late(budget)))
        family = self._family()
        used = sum(_held(process, alone=len(family) == 1) for process in family) / 2**20
        self._peak = max(self._peak, used)
        if used > budget.megabytes:
            greedy = f"{self._who} used more than its limit of {budget.megabytes} MB"
            raise CellFailed(self._with_log(greedy))
        if len(family) > MOST_PROCESSES:
            raise CellFailed(f"{self._who} started more than {MOST_PROCESSES} processes")
        if self.log.stat().st_size > LONGEST_LOG:
            raise CellFailed(f"{self._who} printed more than {LONGEST_LOG >> 20} MB")

    def _late(self, budget: Budget) -> str:
        """That the time is over, and how much of it was work: little, if others had the machine.

        The latter differs each time, so it has a line of its own, which is no part of a record's
        id.
        """
        had = self._cpu_seconds() - self._cpu_before
        threads = f"{self._threads} thread{'s' if self._threads > 1 else ''}"
        return (
            f"{self._who} did not end within {budget.seconds:g} s\n"
            f"it had {had:.3g} s of CPU time, of {budget.seconds:g} s on {threads}"
        )

    def _delayed(self) -> float:
        """How long the machine has kept it waiting: its thread that waited longest for a turn."""
        waits = [0.0]
        for process in self._family():
            for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError, IndexError):  # it may have ended
                    waits.append(int(thread.read_text().split()[1]) / 1e9)
        return max(waits)

    def _cpu_seconds(self) -> float:
        """What the process and all that it started, and has not outlived, have computed so far."""
        total = 0.0
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def _family(self) -> list[psutil.Process]:
        """The process and all that it started; empty where it is gone, or not there yet."""
        if self._process.pid is None:  # which psutil would take for this very process
            return []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _death(self) -> str:
        """How it ended; MachineFault where nobody can tell."""
        code = self._process.wait()
        if code < 0:
            named = {each.value: each.name for each in signal.Signals}
            return f"{self._who}'s process was killed by {named.get(-code, f'signal {-code}')}"
        return f"{self._who}'s process ended with exit code {code}"

    def _with_log(self, message: str) -> str:
        tail = end_of(self.log)
        return f"{message}\n{tail}" if tail else message


def _held(process: psutil.Process, *, alone: bool) -> float:
    """Bytes that a process holds; of what several share, each its part where that can be told."""
    if not alone and sys.platform == "linux":
        with contextlib.suppress(psutil.Error):
            return float(process.memory_full_info().pss)
    with contextlib.suppress(psutil.Error):
        return float(process.memory_info().rss)
    return 0.0


class Workers:
    """Attack processes; while more are `expected`, one is started ahead of its time."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._threads = threads
        self._spare: AttackProcess | None = None
        self._count = 0
        self._kept = ExitStack()
        self._kept.enter_context(FORK_SERVERS.kept())
        self.expected = 0

    def warm(self) -> None:
        """Start the next process now, so that importing torch costs nobody a wait."""
        if self._spare is None:
            self._count += 1
            self.expected -= 1
            log = self._folder / f"worker-{self._count}.log"
            self._spare = AttackProcess(log, self._threads, FORK_SERVERS.start)

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

"""`harness` as a user runs it: a process of its own, with a cache of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import forked
import psutil
from forked import Forked

Command = subprocess.Popen[str] | Forked

STAGE = re.compile(r" *\d+\.\d s  \S.*")
"""A line on stderr that a stage has begun, or a step ended, where that is no terminal."""
SIZES = ("--private-size", "40", "--public-size", "120", "--test-size", "60", "--threads", "1")
SCORES = ("--metrics", "snr_db,mse")
VICTIM = ("--victim", "mlp[epochs=1,width=8]")
LEARNER = ("--learner", "classmeans")
TINY = ("evaluate", *SIZES, *SCORES, *VICTIM, *LEARNER)
"""Both halves of an evaluation with the default defense, in seconds."""
UNET = (*TINY, "--attack", "unet[base=4,epochs=1]")
"""The default job in miniature."""
PRIVACY = (*TINY, "--only", "privacy", "--attack", "identity")
"""The cheapest evaluation that scores something."""


def environment(cache: Path, **more: str) -> dict[str, str]:
    """The tests' environment with this cache."""
    return {**os.environ, "HARNESS_CACHE": str(cache), "OMP_NUM_THREADS": "1", **more}


def start(*arguments: str, cache: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command with its output in pipes."""
    return python("-m", "harness", *arguments, cache=cache, **options)


def python(*arguments: str, cache: Path, **options: Any) -> subprocess.Popen[str]:
    """Start Python with its output in pipes."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, *arguments], text=True, **{**pipes, "env": environment(cache), **options}
    )


def on_terminal(*arguments: str, cache: Path, columns: int) -> str:
    """What a command prints on a terminal of so many columns."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(theirs, "wb") as end:
            surroundings = environment(cache, COLUMNS=str(columns), TERM="dumb")
            process = start(*arguments, cache=cache, stdout=end, env=surroundings)
        shown = b""
        with process, contextlib.suppress(OSError):  # which is how a terminal says it is over
            while part := screen.read(4096):
                shown += part
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def fork(*arguments: str, cache: Path, cwd: Path | None = None) -> Command:
    """Let a command begin with its imports done; signals are heeded."""
    return forked.fork(["-m", "harness", *arguments], environment(cache), cwd or Path.cwd())


def harness(
    *arguments: str, cache: Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, its imports aside."""
    process = fork(*arguments, cache=cache, cwd=cwd)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.wait(), out, err)


def succeed(*arguments: str, cache: Path) -> str:
    """What a command that must succeed prints."""
    done = harness(*arguments, cache=cache)
    assert done.returncode == 0, done.stderr
    assert complaints(done.stderr) == []
    return done.stdout


def complaints(stderr: str) -> list[str]:
    """What was said on stderr besides the stages of the work."""
    return [line for line in stderr.splitlines() if not STAGE.fullmatch(line)]


def record(*arguments: str, cache: Path) -> dict[str, Any]:
    """The record of an evaluation that must succeed."""
    values: dict[str, Any] = json.loads(succeed(*arguments, "--json", cache=cache))
    assert values["status"] == "ok"
    return values


def scores(values: dict[str, Any]) -> dict[str, Any]:
    """All numbers of a record that must not depend on when and where it ran."""
    names = ("privacy", "companions", "utility", "diagnostics", "verdict", "flags")
    return {name: values[name] for name in names}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its time of writing and its size."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one message of a command that was refused with this exit code."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, done.stderr
    return done.stderr


def heed_signals() -> None:
    """A test run in the background may have been told to ignore Ctrl-C, which is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def family(process: Command) -> list[psutil.Process]:
    """All processes that a command has started, and those that they did."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def assert_all_end(processes: list[psutil.Process]) -> None:
    """They were told by nobody: they notice that the one they worked for is gone."""
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def scratch(cache: Path, pid: int) -> list[Path]:
    """Folders that a process has left in its cache, and where its attacks worked."""
    desks = Path(tempfile.gettempdir()) / f"encoding-harness-{os.getuid()}"
    return [path for root in (cache, desks) for path in (root / "tmp").glob(f"*@{pid}@*")]

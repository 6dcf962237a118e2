"""How a hostile process ends, and what it leaves: here nothing is forbidden, and all is found."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Job = Mapping[str, Any]


def _is_pipe(number: int) -> bool:
    path = Path(f"/proc/self/fd/{number}")
    return path.exists() and os.readlink(path).startswith("pipe:")


def _writable(number: int) -> bool:
    flags = Path(f"/proc/self/fdinfo/{number}").read_text().split("flags:")[1].split()[0]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _ways() -> list[int]:
    """Where the process answers its parent: a pipe that no plugin is told of."""
    found = map(int, os.listdir("/proc/self/fd"))
    return [each for each in found if each > 2 and _is_pipe(each) and _writable(each)]


def _say(data: bytes) -> None:
    for number in _ways():
        os.write(number, data)


def ends_at_once(_job: Job) -> None:
    os._exit(0)


def writes_junk(_job: Job) -> None:
    _say(b"{not json\n")
    time.sleep(60)


def says_what_is_no_message(_job: Job) -> None:
    _say(b'{"progress": [1, 2, {"deep": 3}]}\n')
    time.sleep(60)


def nests_deeply(_job: Job) -> None:
    _say(b"[" * 100_000 + b"]" * 100_000 + b"\n")
    time.sleep(60)


def never_ends_its_line(_job: Job) -> None:
    while True:
        _say(b"x" * 65_536)


def prints_without_end(_job: Job) -> None:
    while True:
        sys.stderr.write("x" * 65_536)


def starts_many_processes(_job: Job) -> None:
    for _ in range(200):
        if not os.fork():
            time.sleep(60)
    time.sleep(60)


def takes_much_memory_in_children(_job: Job) -> None:
    for _ in range(4):
        if not os.fork():
            held = bytearray(200 << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(60)
    time.sleep(60)


def raises_what_is_no_exception(_job: Job) -> None:
    raise KeyboardInterrupt


def has_a_long_excuse(_job: Job) -> None:
    raise ValueError("x" * 500_000)


def says_how_it_is_confined(_job: Job) -> None:
    _say(b'{"walls": {"landlock": 99, "seccomp": true}}\n')
    time.sleep(60)


def ends_by_a_signal_without_a_name(_job: Job) -> None:
    os.kill(os.getpid(), 35)


def leaves_a_daemon(job: Job) -> None:
    """In a session of its own, whose parent is gone."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            (Path(job["out"]) / "daemon").write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not (Path(job["out"]) / "daemon").exists():
        time.sleep(0.01)


def leaves_a_daemon_and_ends(job: Job) -> None:
    leaves_a_daemon(job)
    os._exit(0)


def asks_and_never_listens(_job: Job) -> None:
    """Its answers fill the pipe: this process is stopped, and its child asks on."""
    ways = _ways()
    if os.fork():
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        for number in ways:
            os.write(number, b'{"wanted": [0, 0]}\n')
        time.sleep(0.05)


def asks_without_end(_job: Job) -> None:
    while True:
        _say(b'{"wanted": [0, 0]}\n')
        time.sleep(0.05)


def takes_a_second(_job: Job) -> None:
    time.sleep(1)


def opens_many_files(_job: Job) -> None:
    held = [open(os.devnull) for _ in range(5000)]
    raise AssertionError(f"{len(held)} files")

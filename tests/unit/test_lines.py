"""A process and its child speak in lines of JSON, whatever else a plugin does with its streams."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.sandbox.lines import ChildLines, Message

pytestmark = pytest.mark.core

START = "import os, sys, time\nfrom harness.sandbox.lines import ParentLines\n"
BUSY = "ParentLines(lambda: os._exit(3)).listen()\ntime.sleep(600)\n"
ECHO = """
parent = ParentLines(lambda: None)
parent.listen()
print("not for the parent", flush=True)
while True:
    parent.send(heard=parent.receive(), typed=sys.stdin.read())
"""


@contextmanager
def child(tmp_path: Path, program: str) -> Iterator[tuple[ChildLines, subprocess.Popen[bytes]]]:
    """A child that does this, and what we say and hear."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", START + program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    lines = ChildLines(process.stdin, process.stdout)
    try:
        yield lines, process
    finally:
        lines.close()
        process.kill()
        process.wait()


def next_of(lines: ChildLines) -> Message:
    """The next message, which comes alone."""
    while not (found := lines.receive(1.0)):
        pass
    (message,) = found
    return message


def test_each_hears_what_the_other_says_and_a_plugin_neither(tmp_path: Path) -> None:
    with child(tmp_path, ECHO) as (lines, _):
        for said in ({"n": 1}, {"text": "two\nlines", "deep": [None, {"ü": 0.5}]}):
            lines.send(**said)
            assert next_of(lines) == {"heard": said, "typed": ""}
    assert (tmp_path / "log").read_text() == "not for the parent\n"


def test_messages_longer_than_a_pipe_holds_come_whole(tmp_path: Path) -> None:
    with child(tmp_path, ECHO) as (lines, _):
        lines.send(text="x" * 300_000)
        assert next_of(lines)["heard"] == {"text": "x" * 300_000}


def test_nothing_is_received_where_nothing_is_said(tmp_path: Path) -> None:
    with child(tmp_path, ECHO) as (lines, _):
        started = time.monotonic()
        assert lines.receive(0.05) == []
        assert time.monotonic() - started >= 0.04


def test_a_busy_child_notices_that_its_parent_hangs_up(tmp_path: Path) -> None:
    with child(tmp_path, BUSY) as (lines, process):
        lines.close()
        assert process.wait(30) == 3


def test_a_child_that_is_gone_is_the_end_of_its_lines(tmp_path: Path) -> None:
    with child(tmp_path, "") as (lines, process):
        process.wait(30)
        with pytest.raises(EOFError):
            lines.receive(1.0)
        with pytest.raises(BrokenPipeError):
            lines.send(job=1)

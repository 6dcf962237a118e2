"""JSON lines between a process and a child that it started: each message is one line."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

Message = dict[str, Any]
"""JSON values by name."""
LONGEST = 1 << 20
"""Bytes of a line that is listened to."""


class Garbled(Exception):
    """What came is no message."""


class ChildLines:
    """The parent's end, made of a child's pipes."""

    def __init__(self, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        assert stdin is not None
        assert stdout is not None
        self._stdin, self._stdout = stdin, stdout
        self._begun = b""

    def fileno(self) -> int:
        """What can be read once there is something to receive, so that one can wait for it."""
        return self._stdout.fileno()

    def send(self, **message: Any) -> None:
        """Send a message; BrokenPipeError where nobody reads it."""
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()

    def receive(self, within: float) -> list[Message]:
        """All that has come, waiting so many seconds for it; EOFError where the child is gone."""
        return [json.loads(line) for line in self.lines(within)]

    def lines(self, within: float) -> list[bytes]:
        """The same, of a child that is not trusted: Garbled where a line is too long."""
        if not wait([self.fileno()], within):
            return []
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            raise EOFError
        *lines, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LONGEST:
            raise Garbled
        return [line for line in lines if line]

    def close(self) -> None:
        """Hang up, on which the child ends."""
        with contextlib.suppress(BrokenPipeError):  # it may not have read the last message
            self._stdin.close()
        self._stdout.close()


class ParentLines:
    """The child's end, made of its standard streams.

    From then on a plugin that prints writes to the log, and one that reads standard input meets
    its end. `hung_up` is called when the parent is gone.
    """

    def __init__(self, hung_up: Callable[[], object]) -> None:
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._in = os.fdopen(os.dup(0), "rb")
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        self._hung_up = hung_up
        self._received: SimpleQueue[Message] = SimpleQueue()

    def first(self) -> Message:
        """The first message, before there is any thread but this one."""
        line = self._in.readline()
        if not line:
            self._hung_up()
        found: Message = json.loads(line)
        return found

    def listen(self) -> None:
        """Hear all others in a thread, so that the parent's end is noticed while one is busy."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self._in:
            self._received.put(json.loads(line))
        self._hung_up()

    def send(self, **message: Any) -> None:
        """Send a message; BrokenPipeError where the parent is gone."""
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def receive(self) -> Message:
        """The next message, however long it takes to come."""
        return self._received.get()

    def fetch(self, round_: int, number: int) -> Message:
        """Where a piece of the release lies that a learner reads."""
        self.send(wanted=[round_, number])
        return self.receive()

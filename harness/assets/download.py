"""One file by HTTP, resumed from its `.part` where the server can say it is the same file.

How it says how far it is, and that a source failed, is common to all ways of getting bytes.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

Progress = Callable[[int, int], None]
"""Called with the bytes so far and the bytes in all (0 where unknown)."""

TIMEOUT = 10.0
"""Seconds to wait for a connection, and for each next piece."""

FRUITLESS = 2
"""Attempts in a row that may bring nothing before a source is given up."""

CHUNK = 1 << 18


class SourceFailed(Exception):
    """One source did not deliver; the next one is tried. `remedy` is a command, if one helps."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class _Interrupted(Exception):
    """The connection broke; another attempt may help."""


@dataclass(frozen=True)
class _Part:
    """The unfinished file and, beside it, how to ask for the rest of that same file."""

    path: Path

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def request_headers(self) -> dict[str, str]:
        """`Range` with `If-Range`: the rest, or all of it if the file changed meanwhile."""
        if not self.size or not self._note.is_file():
            return {}
        version = json.loads(self._note.read_text())["version"]
        return {"Range": f"bytes={self.size}-", "If-Range": version} if version else {}

    def begin(self, headers: Message) -> None:
        """Forget what is here and note which version of the file is coming."""
        self.path.unlink(missing_ok=True)
        tag = headers.get("ETag", "")
        # A weak tag does not promise equal bytes, so it cannot join two halves.
        version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
        self._note.write_text(json.dumps({"version": version}))

    def finish(self, target: Path) -> None:
        self.path.replace(target)
        self._note.unlink(missing_ok=True)


def _open(address: str, headers: dict[str, str]) -> HTTPResponse:
    headers = {"User-Agent": "encoding-harness", **headers}
    request = urllib.request.Request(address, headers=headers)
    response: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    return response


def _start(response: HTTPResponse, part: _Part) -> int:
    """Where the response's bytes belong: behind what is here, or at the beginning."""
    here = part.size
    ranged = response.headers.get("Content-Range", "")
    if response.status == 206 and ranged.startswith(f"bytes {here}-"):
        return here
    part.begin(response.headers)
    return 0


def _receive(response: HTTPResponse, part: _Part, progress: Progress) -> None:
    """Append the response to the part; raises _Interrupted when it ends too early."""
    start = _start(response, part)
    length, done = response.headers.get("Content-Length"), start
    total = start + int(length) if length else 0
    with part.path.open("ab") as sink:
        while chunk := _read(response):
            sink.write(chunk)
            done += len(chunk)
            progress(done, total)
    if total and done < total:
        raise _Interrupted(f"the connection ended after {done} of {total} bytes")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _Interrupted(f"the connection broke: {error}") from error


def _attempt(address: str, part: _Part, progress: Progress) -> None:
    try:
        response = _open(address, part.request_headers())
    except urllib.error.HTTPError as error:
        with error:
            # What is here does not fit what the server has: begin again.
            if error.code == 416:
                part.path.unlink(missing_ok=True)
                raise _Interrupted("the server has another file now") from error
            raise SourceFailed(f"the server answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, HTTPException, OSError) as error:
        raise _Interrupted(f"not reachable: {getattr(error, 'reason', error)}") from error
    with response:
        _receive(response, part, progress)


def download(address: str, target: Path, progress: Progress) -> None:
    """Get `address` into `target`; on failure a `.part` stays beside it for the next time.

    Raises SourceFailed when the server says no, or after two attempts that brought nothing.
    """
    if urlsplit(address).scheme not in {"http", "https"}:
        raise SourceFailed(f"'{address}' is not an HTTP address")
    part, fruitless = _Part(target.with_name(f"{target.name}.part")), 0
    furthest = part.size
    while True:
        try:
            _attempt(address, part, progress)
        except _Interrupted as error:
            fruitless = 0 if part.size > furthest else fruitless + 1
            furthest = max(furthest, part.size)
            if fruitless >= FRUITLESS:
                raise SourceFailed(str(error)) from error
        else:
            return part.finish(target)

"""Reading what somebody else wrote: plain files of bounded size, and JSON that says one thing.

A link, a pipe or a device is refused before it is opened, and text that looks like other text
before anybody is shown it.
"""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.api.errors import IntegrityError
from harness.store.paths import disk_errors
from harness.store.provenance import canonical_json

MOST = {".json": 8_000_000, ".toml": 1_000_000, ".safetensors": 1 << 33}
"""Bytes of a file by its ending, at most."""
ELSE = 64_000_000
"""Bytes of any other file, at most."""
NAMES = frozenset(
    ("name", "version", "distribution", "threat_model", "release_kind", "null_name", "metric")
)
"""Keys whose values are names, which are written in ASCII: no other letter looks like one of it."""
FREE = frozenset(("config", "resolved", "request", "diagnostics"))
"""Keys of what plugins name as they like."""
HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode's categories of what nobody sees, or what turns the text around it."""


def strange_file(path: Path, most: int | None = None) -> str:
    """Why a file is not to be read, as `is a link`; "" for a plain file of at most so many bytes.

    FileNotFoundError where there is none.
    """
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if not stat.S_ISREG(found.st_mode):
        return "is no plain file"
    allowed = _allowed(path, most)
    if found.st_size > allowed:
        return f"has {found.st_size:,} bytes, and {allowed:,} are read at most"
    return ""


def read_plain(path: Path, most: int | None = None) -> bytes:
    """What stands in a plain file; IntegrityError for anything else, or for too much of it."""
    with disk_errors(path):
        if fault := strange_file(path, most):
            raise IntegrityError(f"{path} {fault}.")
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            return file.read(_allowed(path, most))


def _allowed(path: Path, most: int | None) -> int:
    return MOST.get(path.suffix, ELSE) if most is None else most


def strange_files(folder: Path) -> Iterator[str]:
    """What in a folder, at any depth, is neither a folder nor to be read; nothing is opened."""
    with disk_errors(folder), os.scandir(folder) as entries:
        for name in sorted(entry.name for entry in entries):
            path = folder / name
            if stat.S_ISDIR(path.lstat().st_mode):
                yield from strange_files(path)
            elif fault := strange_file(path):
                yield f"{path} {fault}"


def read_json(data: bytes) -> Any:
    """JSON in UTF-8 that means one thing to everybody; ValueError says what is wrong with it.

    No key twice, no number that is none, no lone surrogate, no byte order mark, and no text that
    hides what it says.
    """
    values = json.loads(
        data.decode("utf-8"), object_pairs_hook=_each_once, parse_constant=_no_number
    )
    canonical_json(values).encode()  # 1e999 and lone surrogates
    check_text(values)
    return values


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def check_text(values: Any, key: str = "", *, free: bool = False) -> None:
    """ValueError for a text with a hidden character, or a name that is not in ASCII."""
    if isinstance(values, dict):
        for name, value in values.items():
            _check(name, key, named=not free)
            check_text(value, name, free=free or name in FREE)
    elif isinstance(values, list):
        for value in values:
            check_text(value, key, free=free)
    elif isinstance(values, str):
        _check(values, key, named=key in NAMES and not free)


def hidden(text: str) -> str:
    """The first character that nobody sees, but for ends of lines and tabs; "" where all are."""
    if text.isprintable():
        return ""
    return next((c for c in text if c not in "\n\r\t" and _hidden(c)), "")


def _hidden(letter: str) -> bool:
    return unicodedata.category(letter) in HIDDEN


def legible(values: Any) -> Any:
    """JSON values with a sign in place of every hidden character: plugins write what they like."""
    if isinstance(values, dict):
        return {legible(name): legible(value) for name, value in values.items()}
    if isinstance(values, list):
        return [legible(value) for value in values]
    if isinstance(values, str) and hidden(values):
        return "".join("\ufffd" if hidden(letter) else letter for letter in values)
    return values


def _check(text: str, key: str, *, named: bool) -> None:
    where = f"{key}: " if key else ""
    if found := hidden(text):
        raise ValueError(f"{where}{text!r} hides the character U+{ord(found):04X}")
    if named and not text.partition("[")[0].isascii():
        raise ValueError(f"{where}{text!r} is a name with other letters than those of ASCII")

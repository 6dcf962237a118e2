"""Records on disk: `records/<id>.json`, and which record answers which cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import IntegrityError, UsageError
from harness.store.paths import disk_errors, listed, write_atomically

if TYPE_CHECKING:
    from harness.store.record import RunRecord

REMEDY = " `harness cache verify --remove` drops what is corrupt; then run its evaluation again."
"""Of the cache's records."""
MALFORMED = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What reading JSON of another shape than expected raises."""


class Records:
    """The records below one root; `remedy` says how to mend one of them that is corrupt."""

    def __init__(self, root: Path, remedy: str = REMEDY) -> None:
        self.root = root
        self._remedy = remedy

    def path(self, identity: str) -> Path:
        """Where a record lies."""
        return self.root / "records" / f"{identity}.json"

    def gallery(self, identity: str) -> Path:
        """Where a record's picture lies."""
        return self.root / "galleries" / f"{identity}.png"

    def _cell(self, key: str) -> Path:
        return self.root / "cells" / key

    def _failure(self, key: str) -> Path:
        return self.root / "failures" / key

    def save(self, record: RunRecord, cell: str | None = None) -> None:
        """Keep a record; a successful one also answers its cell from now on."""
        write_atomically(self.path(record.id), record.json_text().encode() + b"\n")
        if cell:
            write_atomically(self._cell(cell), record.id.encode())

    def save_failure(self, record: RunRecord, cell: str) -> None:
        """Keep a record without a result: the cell has no answer, and this says why."""
        self.save(record)
        write_atomically(self._failure(cell), record.id.encode())

    def answer(self, cell: str) -> RunRecord | None:
        """The record of a cell that has been evaluated before."""
        return self._named_in(self._cell(cell))

    def failure(self, cell: str) -> RunRecord | None:
        """The record of how a cell ended without a result, the last time that it did."""
        return self._named_in(self._failure(cell))

    def _named_in(self, pointer: Path) -> RunRecord | None:
        with disk_errors(self.root):
            if not pointer.exists():
                return None
            identity = pointer.read_text(encoding="utf-8", errors="replace")
            if not self.path(identity).exists():
                return None
        return self.load(self.path(identity))

    def forget(self, cell: str) -> None:
        """Let no record answer a cell: it is evaluated again when asked for."""
        with disk_errors(self.root):
            self._cell(cell).unlink(missing_ok=True)
            self._failure(cell).unlink(missing_ok=True)

    def recent(self, most: int) -> tuple[list[RunRecord], list[str]]:
        """The records kept last, and what is wrong with those among them that are none."""
        with disk_errors(self.root):
            paths = listed(self.root / "records", ".json")
            paths.sort(key=lambda path: path.stat().st_mtime)
        found, faults = [], []
        for path in paths[-most:]:
            try:
                found.append(self.load(path))
            except IntegrityError as error:
                faults.append(str(error))
        return found, faults

    def load(self, path: Path) -> RunRecord:
        """Read a record and check it against its id."""
        from pydantic import ValidationError

        from harness.store.canonical import canonical_json
        from harness.store.record import fingerprint, parse_record

        with disk_errors(path):
            data = path.read_bytes()
        try:
            values = json.loads(data)
            canonical_json(values).encode()  # no NaN and no lone surrogate, wherever they stand
            record, identity = parse_record(values), fingerprint(values)
        except (*MALFORMED, ValidationError) as error:
            raise self._broken(path, f"is not a record: {_first_fault(error)}") from None
        if identity != record.id or self._misnamed(path, record):
            raise self._broken(path, "has been changed: its contents do not match its id")
        return record

    def _misnamed(self, path: Path, record: RunRecord) -> bool:
        return self._own(path) and path != self.path(record.id)

    def _own(self, path: Path) -> bool:
        return path.parent == self.root / "records"

    def _broken(self, path: Path, reason: str) -> IntegrityError:
        return IntegrityError(f"{path} {reason}.{self._remedy if self._own(path) else ''}")

    def find(self, text: str) -> RunRecord:
        """A record by path, id, or the beginning of an id."""
        with disk_errors(Path(text)):
            if (path := Path(text)).is_file():
                return self.load(path)
        beginning = text.replace("/", "_")
        found = listed(self.root / "records", ".json")
        matches = [path for path in found if path.name.startswith(beginning)]
        if len(matches) == 1:
            return self.load(matches[0])
        if matches:
            raise UsageError(f"'{text}' is the beginning of {len(matches)} records; write more.")
        raise UsageError(f"There is no record '{text}': give a file, or an id as evaluate prints.")


def _first_fault(error: Exception) -> str:
    """The first wrong field and what is wrong with it; else the first line of the message."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    first, *more = error.errors(include_url=False, include_context=False, include_input=False)
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" + (f" (and {len(more)} more)" if more else "")

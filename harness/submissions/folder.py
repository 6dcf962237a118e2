"""A submission on disk: who hands in what, for which board, its records and their tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from harness.api.errors import IntegrityError, UsageError
from harness.asking.request import validated
from harness.boards.folder import BoardFolder, find_board
from harness.boards.protocol import FILE as BOARD_FILE
from harness.boards.protocol import Board, Digest, Name, read_description
from harness.store import Store
from harness.store.paths import disk_errors, write_atomically
from harness.store.provenance import sha256_of
from harness.store.record import RunRecord, Stored, Used

FILE = "submission.toml"

Line = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Word = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[ -~]+$")]
Kind = Literal["defense", "attack"]
Standing = Literal["passed", "failed", "not run", "none declared", "no attack"]
"""What became of an attack's positive controls."""


class Authorship(BaseModel, frozen=True, extra="forbid"):
    """What nobody but its authors can say of a submission."""

    authors: Line
    paper: Line
    license: Line


class Plugin(BaseModel, frozen=True, extra="forbid"):
    """One plugin that is handed in, as it was installed where it ran."""

    name: Word
    version: Word
    distribution: Word
    source_sha256: Digest


class Submission(Authorship):
    """What a stranger hands in.

    `what` is the defense or attack as typed, perhaps a grid; `tracks` are those of the board that
    it ran in, `protocol_sha256` says what the board was then. `missing` counts cells of these
    tracks without a record, and those whose reconstruction is not there. `records` are ids.
    """

    schema_: Literal["encoding-harness/submission/1"] = "encoding-harness/submission/1"
    name: Name
    kind: Kind
    what: Line
    board: Name
    protocol_sha256: Digest
    tracks: tuple[Name, ...] = Field(min_length=1)
    control: Standing = "no attack"
    missing: int = Field(ge=0)
    records: tuple[Digest, ...] = ()
    plugins: tuple[Plugin, ...] = Field(min_length=1)

    def hands_in(self, kind: Kind, used: Used) -> bool:
        """Whether this very defense or attack, of whatever options, is handed in."""
        ran = {name: getattr(used, name) for name in Plugin.model_fields}
        return kind == self.kind and any(plugin.model_dump() == ran for plugin in self.plugins)

    def toml(self) -> str:
        """As it lies in the file."""
        values = self.model_dump(mode="json")
        values = {"schema": values.pop("schema_"), **values}
        plugins = values.pop("plugins")
        lines = [f"{key} = {_value(value)}" for key, value in values.items()]
        for plugin in plugins:
            lines += ["", "[[plugins]]", *(f"{k} = {_value(v)}" for k, v in plugin.items())]
        return "\n".join(lines) + "\n"


def _value(value: str | int | list[str]) -> str:
    """One value in TOML; texts have no control characters, so they are quoted as in JSON."""
    if isinstance(value, list):
        return "[" + "".join(f"\n  {_value(each)}," for each in value) + "\n]" if value else "[]"
    return json.dumps(value, ensure_ascii=False)


def handed_in(kind: Kind, record: RunRecord) -> tuple[Used, ...]:
    """The plugins of a record that a submission of this kind is about."""
    return record.defense if kind == "defense" else (record.attack,)


def protocol_of(board: Board) -> str:
    """A hash of what a board fixes, its options and tracks, whatever it says about them."""
    wording = {"tracks": {"__all__": {"title", "about"}}}
    fixed = board.model_dump(mode="json", include={"name", "options", "tracks"}, exclude=wording)
    return sha256_of(fixed)


RECONSTRUCTIONS, RELEASES = "reconstructions", "releases"


class SubmissionFolder(BoardFolder):
    """`submission.toml`, `records/`, `controls/`, and tensors under the names of their records.

    `reconstructions/<id>.safetensors` is what the attack returned, to the byte: its hash is in
    the record. For a defense, `releases/<sha256>.safetensors` is likewise what left the owner and
    what the owner kept of it, so that nobody has to run the defense in order to judge.
    """

    def __init__(self, path: Path, cache: Path | None = None, kind: Kind | None = None) -> None:
        super().__init__(path)
        self._cache = cache
        self._kind = kind

    @cached_property
    def kind(self) -> Kind:
        """Whether a defense or an attack is handed in."""
        return self._kind or self.description.kind

    @property
    def description(self) -> Submission:
        """What it says of itself; UsageError says what is wrong with its file."""
        path = self.path / FILE
        values = read_description(path, f"There is no submission at {self.path}: it has no {FILE}.")
        values["schema_"] = values.pop("schema", None)
        return validated(Submission, values, f"{path} describes no submission")

    def describe(self, submission: Submission) -> None:
        """Write what it says of itself; the file is wholly there or not at all."""
        write_atomically(self.path / FILE, submission.toml().encode())

    @property
    def there(self) -> bool:
        """Whether there is a submission."""
        with disk_errors(self.path):
            return (self.path / FILE).is_file()

    def reconstruction(self, record: RunRecord) -> Path:
        """Where what an attack returned lies."""
        return self.path / RECONSTRUCTIONS / f"{record.id}.safetensors"

    def release(self, record: RunRecord) -> Path:
        """Where what left the owner lies, if a defense is handed in."""
        return self.path / RELEASES / f"{record.artifacts['release'].sha256}.safetensors"

    def keep(self, record: RunRecord, instead: str = "") -> None:
        """Keep a record, in place of the one with the id `instead`; its tensors come first."""
        for path, stage, stored in self.tensors(record):
            if not path.exists():
                self._copy(path, stage, stored)
        super().keep(record, instead)

    def drop(self, identity_: str) -> None:
        """Remove a record, its reconstruction and its picture, if they are there."""
        super().drop(identity_)
        with disk_errors(self.path):
            (self.path / RECONSTRUCTIONS / f"{identity_}.safetensors").unlink(missing_ok=True)

    def complete(self, record: RunRecord) -> bool:
        """Whether a record has with it what it was judged on, if it was judged."""
        with disk_errors(self.path):
            return all(path.exists() for path, _, _ in self.tensors(record))

    def obtainable(self, record: RunRecord) -> bool:
        """Whether what a record was judged on is here, or in the cache."""
        assert self._cache
        store = Store(self._cache)
        return all(path.exists() or store.has(s, a.key) for path, s, a in self.tensors(record))

    def tensors(self, record: RunRecord) -> Iterator[tuple[Path, str, Stored]]:
        """Files that belong to a record, each with the stage that made it."""
        if "attack" not in record.artifacts:
            return
        yield self.reconstruction(record), "attack", record.artifacts["attack"]
        if self.kind == "defense":
            yield self.release(record), "release", record.artifacts["release"]

    def _copy(self, path: Path, stage: str, stored: Stored) -> None:
        assert self._cache
        store = Store(self._cache)
        with disk_errors(path):
            data = store.tensors_path(stage, stored.key).read_bytes()
        if hashlib.sha256(data).hexdigest() != stored.sha256:
            raise IntegrityError(
                f"{store.tensors_path(stage, stored.key)} is not what the record says; "
                "`harness cache verify --remove` drops what is corrupt; then run the same command "
                "again."
            )
        write_atomically(path, data)

    def drop_strays(self, records: Iterable[RunRecord]) -> None:
        """Remove releases that no record is of any more."""
        wanted = {self.release(r) for r in records if "release" in r.artifacts}
        with disk_errors(self.path):
            for path in (self.path / RELEASES).glob("*.safetensors"):
                if path not in wanted:
                    path.unlink()


def board_of(path: Path, name: str, named: str | None = None) -> BoardFolder:
    """The board that a submission is for: the one it lies in, else the one `named`, else by name.

    UsageError where it is another one or cannot be found.
    """
    around = path.absolute().parents
    inside = len(around) > 1 and (around[1] / BOARD_FILE).is_file()
    found = find_board(named) if named else BoardFolder(around[1]) if inside else find_board(name)
    if found.board.name != name:
        raise UsageError(
            f"{path} is a submission to the board '{name}', not to '{found.board.name}' "
            f"({found.path})."
        )
    return found

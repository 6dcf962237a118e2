"""`submission.toml`: who hands in what, for which board, and what belongs to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.asking.request import read_toml, validated
from harness.boards.protocol import Board, Name
from harness.store.canonical import sha256_of
from harness.store.paths import disk_errors, write_atomically

FILE = "submission.toml"
SCHEMA: Literal["encoding-harness/submission/1"] = "encoding-harness/submission/1"

Line = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Kind = Literal["defense", "attack"]
Standing = Literal["passed", "failed", "not run", "none declared", "no attack"]
"""What became of an attack's positive controls."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Said(_Part):
    """What nobody but its authors can say of a submission."""

    authors: Line
    paper: Line
    license: Line


class Plugin(_Part):
    """One plugin that is handed in, as it was installed where it ran."""

    name: Line
    version: Line
    distribution: Line
    source_sha256: Line


class Submission(Said):
    """What a stranger hands in.

    `what` is the defense or attack as typed, perhaps a grid; `tracks` are those of the board that
    it ran in, `protocol_sha256` says what the board was then. `missing` counts cells of these
    tracks without a record, and those whose reconstruction is not there. `records` are ids.
    """

    schema_: Literal["encoding-harness/submission/1"] = SCHEMA
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


def protocol_of(board: Board) -> str:
    """A hash of what a board fixes, its options and tracks, whatever it says about them."""
    said = {"tracks": {"__all__": {"title", "about"}}}
    fixed = board.model_dump(mode="json", include={"name", "options", "tracks"}, exclude=said)
    return sha256_of(fixed)


def read_submission(folder: Path) -> Submission:
    """The description in a folder; UsageError says what is wrong with its file."""
    path = folder / FILE
    values = read_toml(path, f"There is no submission at {folder}: it has no {FILE}.")
    values["schema_"] = values.pop("schema", None)
    return validated(Submission, values, f"{path} describes no submission")


def write_submission(folder: Path, submission: Submission) -> None:
    """Write the description; it is wholly there or not at all."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, submission.toml().encode())

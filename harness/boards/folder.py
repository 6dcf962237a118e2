"""A board's folder: its protocol, its records, its controls, what strangers submitted."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import IntegrityError, UsageError, nearest
from harness.boards.cells import identity
from harness.boards.protocol import FILE, Board, read_board
from harness.store.paths import disk_errors, holding, listed, write_atomically
from harness.store.record import Records

if TYPE_CHECKING:
    from harness.control import AnyReport
    from harness.store.record import RunRecord

BOARDS = Path("leaderboards")
"""Where boards are looked for by name: below the current folder."""
SHIPPED = Path(__file__).parents[1] / "leaderboards"
"""The project's own boards as they come with the package, to be read and not to be filled."""


class BoardFolder:
    """Below one folder: `board.toml`, `records/` and what belongs to them.

    That is `answers/` and `galleries/` by a record's id, `controls/`, where reports lie with the
    records and answers of their cells, and `submissions/`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = Records(path, cache=False)

    @cached_property
    def board(self) -> Board:
        """The protocol."""
        return read_board(self.path)

    @property
    def controls(self) -> Path:
        """Reports on the positive controls of the board's attacks and learners."""
        return self.path / "controls"

    @property
    def control_cells(self) -> BoardFolder:
        """The records of controls' cells, with what the attacks brought back."""
        return BoardFolder(self.controls)

    @property
    def answer_paths(self) -> list[Path]:
        """What the strongest attacks brought back, of few targets: a file for each record."""
        return listed(self.path / "answers", ".safetensors")

    @property
    def answer_bytes(self) -> int:
        """What all of these take."""
        with disk_errors(self.path):
            return sum(path.stat().st_size for path in self.answer_paths)

    def answer_path(self, identity_: str) -> Path:
        """Where a record's answer lies, if it is kept."""
        return self.path / "answers" / f"{identity_}.safetensors"

    @property
    def submissions(self) -> list[Path]:
        """The folders that strangers' submissions lie in, by name."""
        return holding(self.path / "submissions", "submission.toml")

    def kept(self) -> list[RunRecord]:
        """Every record of the board; IntegrityError for one that is not what its id says."""
        return [self.load(path) for path in listed(self.path / "records", ".json")]

    def load(self, path: Path) -> RunRecord:
        """One record of the board, checked against its id."""
        record = self.records.load(path)
        if record.seeds.get("owner_key") != "derived from the seed":
            raise IntegrityError(
                f"{path}: a board's records are for everyone to repeat, and this one was made with "
                "an owner's key of its own."
            )
        return record

    def answers(self) -> dict[str, RunRecord]:
        """By a cell's identity, the record that answers it: the newest, where there are several."""
        kept = sorted(self.kept(), key=lambda record: record.created)
        return {identity(record.request): record for record in kept}

    def keep(self, record: RunRecord, instead: str = "") -> None:
        """Keep a record, in place of the one with the id `instead`."""
        self.records.save(record)
        if instead and instead != record.id:
            self.drop(instead)

    def drop(self, identity_: str) -> None:
        """Remove a record, its picture and its answer, if they are there."""
        with disk_errors(self.path):
            self.records.path(identity_).unlink(missing_ok=True)
            self.records.gallery(identity_).unlink(missing_ok=True)
            self.answer_path(identity_).unlink(missing_ok=True)

    def keep_control(self, report: AnyReport) -> None:
        """Keep a report on a plugin's positive controls, in place of one on the same options."""
        write_atomically(self.controls / report.file_name, report.json_bytes())

    def keep_gallery(self, identity_: str, picture: bytes) -> None:
        """Keep a record's picture."""
        write_atomically(self.records.gallery(identity_), picture)


def every_board(*, shipped: bool = False) -> list[BoardFolder]:
    """All boards below `leaderboards`, by name; UsageError where there is none.

    With those that were `shipped`, where none of that name is here.
    """
    found = _boards(shipped)
    if not found:
        raise UsageError(f"There is no board below {BOARDS}/ here: none has a {FILE}.")
    return [BoardFolder(path) for _, path in sorted(found.items())]


def find_board(name: str, *, shipped: bool = False) -> BoardFolder:
    """A board by its name below `leaderboards`, or by its folder; also one that was `shipped`."""
    with disk_errors(Path(name)):
        if (Path(name) / FILE).is_file():
            return BoardFolder(Path(name))
    known = _boards(shipped)
    if name in known:
        return BoardFolder(known[name])
    where = f"below {BOARDS}/ here, nor a folder with a {FILE}"
    raise UsageError(f"There is no board '{name}' {where}.{nearest(name, known)}")


def _boards(shipped: bool) -> dict[str, Path]:
    """Folders of boards by name; what is here goes before what was shipped."""
    places = [SHIPPED, BOARDS] if shipped else [BOARDS]
    return {path.name: path for place in places for path in holding(place, FILE)}

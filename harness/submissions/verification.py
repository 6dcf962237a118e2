"""Verifying records, boards and submissions: what holds, what differs, what nobody can tell.

Hashes, schema, membership and sums need no torch; judging again and running again do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import HarnessError, IntegrityError, UsageError
from harness.boards.cells import cells_of, identity
from harness.boards.folder import BoardFolder, find_board
from harness.boards.protocol import FILE as BOARD_FILE
from harness.control import SCHEMA as CONTROL_SCHEMA
from harness.running.run import Observer
from harness.store.artifacts import Store
from harness.store.paths import disk_errors, holding
from harness.store.record import Records
from harness.submissions import checks
from harness.submissions.again import (
    fresh_cache,
    judged_otherwise,
    outside,
    replay,
    same_bits,
    unmeasured,
)
from harness.submissions.cells import check_tracks
from harness.submissions.checks import (
    Note,
    Verdict,
    Wanted,
    What,
    broken,
    json_files,
    verdict,
    wanted_of,
)
from harness.submissions.folder import FILE as SUBMISSION_FILE
from harness.submissions.folder import Submission, SubmissionFolder, board_of
from harness.submissions.sums import faults

if TYPE_CHECKING:
    from harness.boards.protocol import Board
    from harness.store.record import RunRecord

Check = Callable[["RunRecord"], Iterable[Note]]


@dataclass
class Verifier:
    """Verifies what lies under paths. `judge` and `rerun` say how far to go.

    `board` is where submissions belong that do not lie in their board. Cells that are run again
    share a cache, gone at the end.
    """

    root: Path
    judge: bool = True
    rerun: bool = False
    board: str | None = None
    observer: Observer = field(default_factory=Observer)
    _open: ExitStack = field(default_factory=ExitStack)
    _cache: Path | None = None

    def __post_init__(self) -> None:
        self.store = Store(self.root)

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def verify(self, text: str) -> Iterator[Verdict]:
        """What becomes of each thing at a path, of all boards below it, or of a board by its name.

        UsageError where there is nothing that can be verified.
        """
        path = Path(text)
        with disk_errors(path):
            is_file, is_folder = path.is_file(), path.is_dir()
            is_board, is_submission = (
                (path / name).is_file() for name in (BOARD_FILE, SUBMISSION_FILE)
            )
        if is_file:
            yield from self._at(path)
        elif not is_folder or is_board:
            yield from self._board(find_board(text))
        elif is_submission:
            folder = SubmissionFolder(path)
            yield from self._submission(folder, self._board_of(folder))
        elif boards := _boards_below(path):
            for board in boards:
                yield from self._board(BoardFolder(board))
        else:
            yield from self._records(path)

    def _at(self, path: Path) -> Iterator[Verdict]:
        """What a file is of: a board, a submission, a report, or one record."""
        if path.name in (BOARD_FILE, SUBMISSION_FILE):
            yield from self.verify(str(path.absolute().parent))
        else:
            yield self._file(path)

    def _file(self, path: Path) -> Verdict:
        """One record or report, with what lies around it."""
        around = path.absolute().parents
        if _is_report(path):
            return _control(path, _told_around(path))
        if len(around) > 1 and around[0].name == "records":
            if (around[1] / SUBMISSION_FILE).is_file():
                folder = SubmissionFolder(around[1])
                return self._submitted(folder, self._board_of(folder), path)
            if (around[1] / BOARD_FILE).is_file():
                return self._of_board(BoardFolder(around[1]), path)
        return self._record(path)

    def _records(self, folder: Path) -> Iterator[Verdict]:
        """A folder of records."""
        paths = json_files(folder) or json_files(folder / "records")
        if not paths:
            raise UsageError(
                f"{folder} holds no records, nor {BOARD_FILE} or {SUBMISSION_FILE}: give a record, "
                "a folder of records, a board or a submission."
            )
        yield from map(self._file, paths)

    def _board(self, folder: BoardFolder) -> Iterator[Verdict]:
        wanted = _identities(folder)
        paths = _records_of(folder)
        yield from (self._of_board(folder, path, wanted) for path in paths)
        yield from map(_control, json_files(folder.controls))
        strangers = [SubmissionFolder(path) for path in folder.submissions]
        for each in strangers:
            yield from self._nested(each, folder)
        own = {path.name for path in paths}  # a record handed in once more is the same one
        submitted = [
            cell
            for each in strangers
            for cell in _requested(each, (p for p in _records_of(each) if p.name not in own))
        ]
        notes = checks.of_board(_requested(folder, paths), submitted, wanted)
        yield verdict("board", folder.path, folder.board.title, notes)

    def _nested(self, folder: SubmissionFolder, board: BoardFolder) -> Iterator[Verdict]:
        """A submission among others: that nobody can read it must not hide the others."""
        try:
            yield from self._submission(folder, board)
        except HarnessError as error:
            yield verdict("submission", folder.path, "", [("broken", str(error))])

    def _of_board(self, folder: BoardFolder, path: Path, wanted: set[str] | None = None) -> Verdict:
        here = _identities(folder) if wanted is None else wanted
        belongs = partial(checks.of_cell, wanted=here, board=folder.board)
        return self._record(path, folder, belongs, partial(self._asked, folder.board))

    def _board_of(self, folder: SubmissionFolder) -> BoardFolder:
        return board_of(folder.path, folder.description.board, self.board)

    def _submission(self, folder: SubmissionFolder, board: BoardFolder) -> Iterator[Verdict]:
        told = folder.description
        if told.board != board.board.name:
            raise UsageError(f"{folder.path} is for the board '{told.board}'.")
        check_tracks(board.board, told.tracks)
        wanted = wanted_of(told, board)
        paths = _records_of(folder)
        yield from (self._submitted(folder, board, path, wanted) for path in paths)
        yield from (_control(path, told) for path in json_files(folder.controls))
        notes = [
            *checks.of_description(folder, told, board),
            *checks.of_files(folder, told, paths),
            *checks.of_cells(told, set(_requested(folder, paths)), wanted),
        ]
        yield verdict("submission", folder.path, f"{told.kind} {told.what}", notes)

    def _submitted(
        self, folder: SubmissionFolder, board: BoardFolder, path: Path, wanted: Wanted | None = None
    ) -> Verdict:
        """A record of a submission, with the tensors that belong to it."""
        told = folder.description
        places = wanted_of(told, board) if wanted is None else wanted
        here = {cell for place in places for cells in place for cell in cells}
        return self._record(
            path,
            folder,
            partial(checks.of_cell, wanted=here, board=board.board),
            partial(checks.of_plugins, told=told),
            partial(self._asked, board.board),
            partial(checks.of_tensors, folder, told),
            partial(self._judged, folder, told),
        )

    def _record(self, path: Path, folder: BoardFolder | None = None, *others: Check) -> Verdict:
        """A record: its id, its sums, then each check as long as nothing is broken."""
        title, notes = "", list[Note]()
        try:
            record = (folder or Records(path.parent)).load(path)
            title = _title(record)
            for check in (_summed, *others, self._again):
                notes += check(record)
                if broken(notes):
                    break
        except IntegrityError as error:
            notes.append(("broken", str(error).removeprefix(f"{path} ")))
        return verdict("record", path, title, notes)

    def _asked(self, board: Board, record: RunRecord) -> Iterator[Note]:
        """What follows from what was asked; running it again says more of what cannot be."""
        yield from checks.of_counting(record)
        yield from checks.of_knowledge(record)
        if not self.rerun:
            yield from checks.of_absence(record, board)

    def _judged(
        self, folder: SubmissionFolder, told: Submission, record: RunRecord
    ) -> Iterator[Note]:
        """What an attack returned, judged again; no plugin of the stranger runs."""
        if not (self.judge and "attack" in record.artifacts and folder.complete(record)):
            return
        release = folder.release(record) if told.kind == "defense" else None
        try:
            notes = _rejudged(
                record, folder.reconstruction(record), release, self.store, self.observer
            )
        except IntegrityError:
            raise
        except HarnessError as error:
            notes = [("cannot", f"judging again: {error}")]
        yield from notes

    def _again(self, record: RunRecord) -> Iterator[Note]:
        """A cell run again, in a cache where nothing was run before."""
        if not self.rerun:
            return
        if self._cache is None:
            self._cache = self._open.enter_context(fresh_cache(self.root))
        try:
            other = replay(record, self._cache, self.observer)
        except IntegrityError:
            raise
        except HarnessError as error:
            yield "cannot", f"running again: {error}"
            return
        yield _compared(record, other)


def _rejudged(
    record: RunRecord,
    reconstruction: Path,
    release: Path | None,
    store: Store,
    observer: Observer,
) -> list[Note]:
    from harness.running.machine import check_machine

    check_machine("cpu")
    from harness.running.rejudge import rejudge

    found = rejudge(record, reconstruction, release, store, observer)
    others = judged_otherwise(
        record, found.privacy, found.by_image, found.findings, found.identification
    )
    missing = unmeasured(record.privacy, found.privacy)
    notes: list[Note] = [("differs", f"judged again, {text}") for text in others]
    notes += [("cannot", f"judging again by {text}") for text in missing]
    return notes or [("ok", "judged again: the same")]


def _compared(record: RunRecord, other: RunRecord) -> Note:
    if same_bits(record, other):
        return "ok", "run again: the same to the bit"
    found = outside(record, other)
    if found:
        return "differs", f"run again, {'; '.join(found)}"
    return "ok", "run again: within its intervals"


def _boards_below(path: Path) -> list[Path]:
    return holding(path, BOARD_FILE)


def _identities(folder: BoardFolder) -> set[str]:
    return {cell.identity for cell in cells_of(folder.board)}


def _requested(folder: BoardFolder, paths: Iterable[Path]) -> list[str]:
    """The cells that records are of; what is wrong with a record is said of it elsewhere."""
    found = []
    for path in paths:
        try:
            found.append(identity(folder.load(path).request))
        except IntegrityError:
            continue
    return found


def _summed(record: RunRecord) -> list[Note]:
    return [("broken", fault) for fault in faults(record)]


def _records_of(folder: BoardFolder) -> list[Path]:
    return json_files(folder.path / "records")


def _is_report(path: Path) -> bool:
    """Whether a file is a report on controls, and no record; UsageError where it is no JSON.

    What lies among a board's records or reports is taken for one, and is broken if it is none.
    """
    if path.suffix == ".json" and path.absolute().parent.name in ("records", "controls"):
        return path.absolute().parent.name == "controls"
    with disk_errors(path):
        data = path.read_bytes()
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{path} is no JSON: give a record, a report on controls, {BOARD_FILE}, "
            f"{SUBMISSION_FILE}, or a folder of them."
        ) from None
    schema = values.get("schema") if isinstance(values, dict) else None
    return schema == CONTROL_SCHEMA


def _told_around(path: Path) -> Submission | None:
    """What the submission says that a report lies in, if it lies in one."""
    around = path.absolute().parents
    inside = len(around) > 1 and around[0].name == "controls"
    with disk_errors(path):
        submitted = inside and (around[1] / SUBMISSION_FILE).is_file()
    return SubmissionFolder(around[1]).description if submitted else None


def _control(path: Path, told: Submission | None = None) -> Verdict:
    what: What = "control"
    try:
        return verdict(what, path, "", checks.of_report(path, told))
    except IntegrityError as error:
        return verdict(what, path, "", [("broken", str(error).removeprefix(f"{path} "))])


def _title(record: RunRecord) -> str:
    seed = f", seed {record.request.seed}" if record.request.seed else ""
    return f"{record.request.defense} × {record.request.attack}{seed}"

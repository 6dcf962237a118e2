"""Verifying records, boards and submissions: what holds, what differs, what nobody can tell.

Hashes, schema, membership and sums need no torch; judging again and running again do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from harness.api.errors import HarnessError, IntegrityError, UsageError
from harness.boards.cells import cells_of, identity
from harness.boards.folder import BoardFolder, find_board
from harness.boards.protocol import FILE as BOARD_FILE
from harness.boards.protocol import Board
from harness.boards.signing import FILE as SIGNATURE
from harness.control import SCHEMA as CONTROL_SCHEMA
from harness.running.run import Observer
from harness.store.artifacts import Store
from harness.store.paths import disk_errors, holding, listed
from harness.store.reading import read_plain, strange_files
from harness.store.record import Records, RunRecord
from harness.submissions import checks
from harness.submissions.again import answers_judged_again, fresh_cache, judged_again, run_again
from harness.submissions.checks import (
    DEPTHS,
    Depth,
    Note,
    Verdict,
    Wanted,
    verdict,
    wanted_of,
    worst,
)
from harness.submissions.folder import FILE as SUBMISSION_FILE
from harness.submissions.folder import Submission, SubmissionFolder, board_of
from harness.submissions.hidden import Hidden, run_hidden
from harness.submissions.sums import faults

Check = Callable[[RunRecord], Iterable[Note]]
DEEPEST = 4
"""Of the folders around a record, the first of which its board may not be any more."""


@dataclass
class Verifier:
    """Verifies what lies under paths. `judge` and `rerun` say how far to go.

    Where there is something `hidden`, cells are run again on what is drawn from it. `board` is
    where submissions belong that do not lie in their board. Cells that are run again share a cache,
    gone at the end.
    """

    root: Path
    judge: bool = True
    rerun: bool = False
    board: str | None = None
    hidden: Hidden | None = None
    observer: Observer = field(default_factory=Observer)
    _open: ExitStack = field(default_factory=ExitStack)
    _loose: list[RunRecord] = field(default_factory=list)
    _signers: dict[Path, Note] = field(default_factory=dict)

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def verify(self, text: str) -> Iterator[Verdict]:
        """What becomes of each thing at a path, of all boards below it, or of a board by its name.

        A board or a submission may also be named by its own file. UsageError where there is
        nothing that can be verified.
        """
        path = Path(text)
        with disk_errors(path):
            is_file, is_folder = path.is_file(), path.is_dir()
            is_board, is_submission = (
                (path / name).is_file() for name in (BOARD_FILE, SUBMISSION_FILE)
            )
        if is_file and path.name in (BOARD_FILE, SUBMISSION_FILE):
            yield from self.verify(str(path.absolute().parent))
        elif is_file:
            yield self._file(path)
        elif not is_folder or is_board:
            yield from self._board(find_board(text))
        elif is_submission:
            folder = SubmissionFolder(path)
            yield from self._submission(folder, self._board_of(folder))
        elif boards := holding(path, BOARD_FILE):
            for board in boards:
                yield from self._board(BoardFolder(board))
        elif records := listed(path, ".json") or listed(path / "records", ".json"):
            yield from map(self._file, records)
        else:
            raise UsageError(
                f"{path} holds no records, nor {BOARD_FILE} or {SUBMISSION_FILE}: give a record, "
                "a folder of records, a board or a submission."
            )

    def together(self) -> Iterator[Verdict]:
        """Whether the records of all paths so far that lie in no board agree with each other."""
        if len(self._loose) > 1:
            title = f"{len(self._loose)} records together"
            yield verdict("records", Path(), title, checks.of_siblings(self._loose))

    def _file(self, path: Path) -> Verdict:
        """One record or report, with what lies around it."""
        if _is_report(path):
            home = _home(path, "controls", SUBMISSION_FILE)
            return _control(path, SubmissionFolder(home).description if home else None)
        signature = partial(self._signature, path)
        if home := _home(path, "records", SUBMISSION_FILE):
            folder = SubmissionFolder(home)
            own = self._board_of(folder)
            among = partial(self._among, folder, own)
            return self._submitted(
                folder, own, path, wanted_of(folder.description, own), among, signature
            )
        if home := _home(path, "records", BOARD_FILE):
            board = BoardFolder(home)
            return self._of_board(
                board, path, _identities(board), partial(self._among, board, None), signature
            )
        return self._record(path, None, checks.of_version, self._remembered)

    def _remembered(self, record: RunRecord) -> Iterable[Note]:
        self._loose.append(record)
        return []

    def _among(
        self, folder: BoardFolder, board: BoardFolder | None, record: RunRecord
    ) -> Iterator[Note]:
        """A record among those of its folder; of a submission, also among those of its board."""
        yield from checks.of_sibling(record, _loaded(folder, _records_of(folder)))
        if board and not self.rerun:
            kept = _loaded(board, _records_of(board))
            yield from checks.of_elsewhere([record], kept, board.board)

    def _board(self, folder: BoardFolder) -> Iterator[Verdict]:
        if found := [*strange_files(folder.path)]:
            yield verdict("board", folder.path, "", [("broken", fault) for fault in found])
            return
        wanted = _identities(folder)
        paths = _records_of(folder)
        yield from (self._of_board(folder, path, wanted) for path in paths)
        yield from map(_control, listed(folder.controls, ".json"))
        yield from self._control_cells(folder)
        strangers = [SubmissionFolder(path) for path in folder.submissions]
        for each in strangers:
            yield from self._nested(each, folder)
        own = {path.name for path in paths}  # a record handed in once more is the same one
        submitted = [
            identity(record.request)
            for each in strangers
            for record in _loaded(each, (p for p in _records_of(each) if p.name not in own))
        ]
        kept = _loaded(folder, paths)
        here = [identity(record.request) for record in kept]
        notes = [
            *checks.of_siblings(kept),
            *checks.of_answers(folder, kept),
            *checks.of_board(here, submitted, wanted, folder.board),
            checks.of_signature(folder.path),
        ]
        yield verdict("board", folder.path, folder.board.title, notes)

    def _control_cells(self, folder: BoardFolder) -> Iterator[Verdict]:
        """The records of controls' cells, and whether they agree."""
        cells, named = folder.control_cells, checks.control_records(folder)
        paths = _records_of(cells)
        for path in paths:
            known = partial(checks.of_control_record, named=named, board=folder.board)
            yield self._record(path, cells, known, judge=partial(self._answered, cells))
        kept = _loaded(cells, paths)
        notes = [*checks.of_siblings(kept), *checks.of_answers(cells, kept)]
        if notes:
            yield verdict("records", cells.path, "cells of controls", notes)

    def _nested(self, folder: SubmissionFolder, board: BoardFolder) -> Iterator[Verdict]:
        """A submission among others: that nobody can read it must not hide the others."""
        try:
            yield from self._submission(folder, board)
        except HarnessError as error:
            yield verdict("submission", folder.path, "", [("broken", str(error))])

    def _of_board(
        self, folder: BoardFolder, path: Path, wanted: set[str], *others: Check
    ) -> Verdict:
        belongs = partial(checks.of_cell, wanted=wanted, board=folder.board)
        return self._record(
            path,
            folder,
            belongs,
            partial(self._request, folder.board),
            *others,
            judge=partial(self._answered, folder),
        )

    def _answered(self, folder: BoardFolder, record: RunRecord) -> Iterable[Note]:
        """What a board keeps of an answer, judged again."""
        path = folder.answer_path(record.id)
        with disk_errors(path):
            there = path.is_file()
        if not (self.judge and there):
            return []
        return _unless_refused(
            "judging again", answers_judged_again, record, path, self._store, self.observer
        )

    def _board_of(self, folder: SubmissionFolder) -> BoardFolder:
        return board_of(folder.path, folder.description.board, self.board)

    def _submission(self, folder: SubmissionFolder, board: BoardFolder) -> Iterator[Verdict]:
        if found := [*strange_files(folder.path)]:
            yield verdict("submission", folder.path, "", [("broken", fault) for fault in found])
            return
        submission = folder.description
        if submission.board != board.board.name:
            raise UsageError(f"{folder.path} is for the board '{submission.board}'.")
        wanted = wanted_of(submission, board)
        paths = _records_of(folder)
        yield from (self._submitted(folder, board, path, wanted) for path in paths)
        yield from (_control(path, submission) for path in listed(folder.controls, ".json"))
        kept = _loaded(folder, paths)
        there = {identity(record.request) for record in kept}
        notes = [
            *checks.of_description(folder, submission, board),
            *checks.of_files(folder, submission, paths),
            *checks.of_cells(submission, there, wanted),
            *checks.of_siblings(kept),
        ]
        if not self.rerun:
            own = _loaded(board, _records_of(board))
            notes += checks.of_elsewhere(kept, own, board.board)
        yield verdict("submission", folder.path, f"{submission.kind} {submission.what}", notes)

    def _submitted(
        self,
        folder: SubmissionFolder,
        board: BoardFolder,
        path: Path,
        wanted: Wanted,
        *others: Check,
    ) -> Verdict:
        """A record of a submission, with the tensors that belong to it."""
        submission = folder.description
        here = {cell for place in wanted for cells in place for cell in cells}
        return self._record(
            path,
            folder,
            partial(checks.of_cell, wanted=here, board=board.board),
            partial(checks.of_plugins, submission=submission),
            partial(self._request, board.board),
            partial(self._as_here, board.board),
            partial(checks.of_tensors, folder),
            *others,
            judge=partial(self._judged, folder),
            release=partial(_release_of, folder),
        )

    def _record(
        self,
        path: Path,
        folder: BoardFolder | None = None,
        *others: Check,
        judge: Check | None = None,
        release: Callable[[RunRecord], Path | None] = lambda _: None,
    ) -> Verdict:
        """A record: its id, its sums, then each check as long as nothing is broken."""
        title, notes = "", list[Note]()
        depth: Depth = "consistent"
        held: tuple[Check, ...] = () if self.rerun else (checks.of_ceilings,)
        own: tuple[Check, ...] = (checks.of_members, *others, *held, partial(self._vouched, path))
        steps: list[tuple[Depth, Check]] = [("consistent", check) for check in own]
        steps += [("judged again", judge)] if judge else []
        steps += [("run again", partial(self._again, release))]
        try:
            record = (folder or Records(path.parent)).load(path)
            seed = f", seed {record.request.seed}" if record.request.seed else ""
            title = f"{record.request.defense} × {record.request.attack}{seed}"
            notes += [("broken", fault) for fault in faults(record)]
            for reached, check in steps:
                if any(outcome == "broken" for outcome, _ in notes):
                    break
                found = [*check(record)]
                notes += found
                if found and worst(outcome for outcome, _ in found) == "ok":
                    depth = max(depth, reached, key=DEPTHS.index)
        except IntegrityError as error:
            notes.append(_unlike_its_hash(path, error))
        return verdict("record", path, title, notes, depth)

    def _request(self, board: Board, record: RunRecord) -> Iterator[Note]:
        """What follows from what was asked; running it again says more of what cannot be."""
        yield from checks.of_counting(record)
        yield from checks.of_knowledge(record)
        yield from checks.of_asked_ceilings(record)
        if not self.rerun:
            yield from checks.of_absence(record, board)

    def _as_here(self, board: Board, record: RunRecord) -> Iterable[Note]:
        """Whether it is of what is installed here; running it again tells more."""
        return [] if self.rerun else checks.of_today(record, board)

    def _judged(self, folder: SubmissionFolder, record: RunRecord) -> Iterable[Note]:
        """What an attack returned, judged again; no plugin of the stranger runs."""
        if not (self.judge and "attack" in record.artifacts and folder.complete(record)):
            return []
        release = folder.release(record) if folder.kind == "defense" else None
        answer, store = folder.reconstruction(record), Store(self.root)
        return _unless_refused(
            "judging again", judged_again, record, answer, release, store, self.observer
        )

    def _again(
        self, release: Callable[[RunRecord], Path | None], record: RunRecord
    ) -> Iterable[Note]:
        """A cell run again, in a cache where nothing was run before."""
        if not self.rerun:
            return []
        if self.hidden:
            rerun = partial(run_hidden, record, self.hidden)
        else:
            rerun = partial(run_again, record, release(record))
        return _unless_refused("running again", rerun, self._cache, self.observer)

    def _signature(self, path: Path, _: RunRecord) -> Iterable[Note]:
        """Of a record that is verified alone: that its board's signature does not fit."""
        return [note for note in self._signed(path) if note[0] != "ok"]

    def _vouched(self, path: Path, _: RunRecord) -> Iterable[Note]:
        """Who signed the board that a record lies in; a misfit is said of the board."""
        return [note for note in self._signed(path) if note[0] == "ok"]

    def _signed(self, path: Path) -> Iterable[Note]:
        """What there is to say of the signature that a record lies under; nothing of none."""
        for folder in path.absolute().parents[1:DEEPEST]:
            with disk_errors(folder):
                there = os.path.lexists(folder / SIGNATURE)
            if there and folder not in self._signers:
                self._signers[folder] = checks.of_signature(folder)
            if there:
                return [self._signers[folder]]
        return []

    @cached_property
    def _store(self) -> Store:
        """Guesses on the same images are scored once for all boards' records."""
        return Store(self.root)

    @cached_property
    def _cache(self) -> Path:
        """The cache of all cells that are run again."""
        return self._open.enter_context(fresh_cache(self.root))


def _release_of(folder: SubmissionFolder, record: RunRecord) -> Path | None:
    """What a defense released when a record was made, where it was handed in."""
    kept = folder.kind == "defense" and "release" in record.artifacts and folder.complete(record)
    return folder.release(record) if kept else None


def _home(path: Path, below: str, file: str) -> Path | None:
    """The folder with this file whose `records` or `controls` a path lies in, if there is one."""
    folder = path.absolute().parent
    with disk_errors(path):
        there = folder.name == below and (folder.parent / file).is_file()
    return folder.parent if there else None


def _identities(folder: BoardFolder) -> set[str]:
    return {cell.identity for cell in cells_of(folder.board)}


def _records_of(folder: BoardFolder) -> list[Path]:
    return listed(folder.path / "records", ".json")


def _loaded(folder: BoardFolder, paths: Iterable[Path]) -> list[RunRecord]:
    """Those that can be read; what is wrong with a record is said of it elsewhere."""
    found = []
    for path in paths:
        with suppress(IntegrityError):
            found.append(folder.load(path))
    return found


def _unless_refused(doing: str, again: Callable[..., list[Note]], *given: Any) -> list[Note]:
    """What doing something again shows; where it cannot be done here, the reason."""
    try:
        return again(*given)
    except IntegrityError:
        raise
    except HarnessError as error:
        return [("cannot", f"{doing}: {error}")]


def _is_report(path: Path) -> bool:
    """Whether a file is a report on controls, and no record; UsageError where it is no JSON.

    What lies among a board's records or reports is taken for one, and is broken if it is none.
    """
    if path.suffix == ".json" and path.absolute().parent.name in ("records", "controls"):
        return path.absolute().parent.name == "controls"
    data = read_plain(path)
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{path} is no JSON: give a record, a report on controls, {BOARD_FILE}, "
            f"{SUBMISSION_FILE}, or a folder of them."
        ) from None
    return isinstance(values, dict) and values.get("schema") == CONTROL_SCHEMA


def _control(path: Path, submission: Submission | None = None) -> Verdict:
    try:
        notes = [*checks.of_report(path, submission), *checks.of_control_cells(path)]
        return verdict("control", path, "", notes)
    except IntegrityError as error:
        return verdict("control", path, "", [_unlike_its_hash(path, error)])


def _unlike_its_hash(path: Path, error: IntegrityError) -> Note:
    return "broken", str(error).removeprefix(f"{path} ")

"""What a board's view is made of, and reading it from the board's folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.store.paths import disk_errors, listed

if TYPE_CHECKING:
    from harness.boards.folder import BoardFolder
    from harness.boards.protocol import Board
    from harness.control import ControlReport
    from harness.store.record import RunRecord
    from harness.submissions.folder import Submission


@dataclass(frozen=True)
class Kept:
    """A record of a board.

    `origin` is the submission it came with, `gallery` where its picture lies below the board's
    folder; empty and None where there is none. `unproven`: it says that its cell cannot be, or
    does not count, and what was asked does not say so.
    """

    record: RunRecord
    origin: str = ""
    gallery: str | None = None
    unproven: bool = False


@dataclass(frozen=True)
class Reported:
    """A report on positive controls: the board's own, or of the submission `origin`."""

    report: ControlReport
    origin: str = ""


@dataclass(frozen=True)
class Material:
    """All that a view follows from."""

    board: Board
    kept: tuple[Kept, ...]
    controls: tuple[Reported, ...] = ()
    submissions: tuple[Submission, ...] = ()


def gathered(folder: BoardFolder) -> Material:
    """Read a board's folder; IntegrityError for a file that is not what its name says."""
    from harness.submissions.folder import SubmissionFolder

    kept = [_kept(folder, record) for record in folder.kept()]
    controls = [Reported(report) for report in _reports(folder.controls)]
    submissions = []
    for each in map(SubmissionFolder, folder.submissions):
        told = _described(each.path, each.description, folder)
        submissions.append(told)
        kept += [_kept(folder, record, told.name) for record in each.kept()]
        controls += _handed_in(each.controls, told)
    return Material(folder.board, tuple(kept), tuple(controls), tuple(submissions))


def _described(path: Path, told: Submission, folder: BoardFolder) -> Submission:
    """What a submission says of itself; UsageError unless it is of this board and folder."""
    from harness.api.errors import UsageError

    if (told.board, told.name) != (folder.board.name, path.name):
        raise UsageError(
            f"{path} holds the submission '{told.name}' to the board '{told.board}'; it belongs "
            f"below submissions/{told.name} of that board."
        )
    for name in told.tracks:
        folder.board.track(name)
    return told


def _kept(board: BoardFolder, record: RunRecord, origin: str = "") -> Kept:
    below = Path("submissions", origin) if origin else Path()
    picture = below / "galleries" / f"{record.id}.png"
    with disk_errors(board.path):
        there = (board.path / picture).is_file()
    shown = picture.as_posix() if there else None
    return Kept(record, origin, shown, unproven=unproven(record, board.board, origin))


def unproven(record: RunRecord, board: Board, origin: str = "") -> bool:
    """Whether a record has no result that counts, for no reason that follows from what was asked.

    A stranger's plugins are installed here or not; what a board shows must not depend on that.
    """
    from harness.asking.registry import OWN_DISTRIBUTION
    from harness.submissions.checks import of_counting, ruled_out

    if record.status != "not_applicable":
        return any(of_counting(record))
    if record.id in board.confirmed:
        return False
    strange = {used.distribution for used in (*record.defense, record.attack)} - {OWN_DISTRIBUTION}
    return bool(origin and strange) or not ruled_out(record)


def _handed_in(folder: Path, told: Submission) -> Iterator[Reported]:
    """A submission's reports on the attack that it hands in; others count for nothing."""
    for report in _reports(folder):
        if told.hands_in("attack", report.attack):
            yield Reported(report, told.name)


def _reports(folder: Path) -> Iterator[ControlReport]:
    from harness.control import load_report

    paths = listed(folder, ".json")
    for path in paths:
        yield load_report(path)

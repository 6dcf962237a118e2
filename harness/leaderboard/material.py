"""What a board's view is made of, and reading it from the board's folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.store.paths import disk_errors

if TYPE_CHECKING:
    from harness.boards.folder import BoardFolder
    from harness.boards.protocol import Board
    from harness.control import ControlReport
    from harness.record import RunRecord
    from harness.submissions.description import Submission


@dataclass(frozen=True)
class Kept:
    """A record of a board.

    `origin` is the submission it came with, `gallery` where its picture lies below the board's
    folder; empty and None where there is none.
    """

    record: RunRecord
    origin: str = ""
    gallery: str | None = None


@dataclass(frozen=True)
class Material:
    """All that a view follows from."""

    board: Board
    kept: tuple[Kept, ...]
    controls: tuple[ControlReport, ...] = ()
    submissions: tuple[Submission, ...] = ()


def gathered(folder: BoardFolder) -> Material:
    """Read a board's folder; IntegrityError for a file that is not what its name says."""
    from harness.submissions.folder import SubmissionFolder

    strangers = [SubmissionFolder(path) for path in folder.submissions]
    kept = [_kept(folder.path, record) for record in folder.kept()]
    for each in strangers:
        kept += [_kept(folder.path, record, each.path.name) for record in each.kept()]
    return Material(
        board=folder.board,
        kept=tuple(kept),
        controls=tuple(r for each in (folder, *strangers) for r in _reports(each.controls)),
        submissions=tuple(_described(each.path, each.description, folder) for each in strangers),
    )


def _described(path: Path, told: Submission, folder: BoardFolder) -> Submission:
    """What a submission says of itself; UsageError unless it is of this board and folder."""
    from harness.api.errors import UsageError
    from harness.submissions.cells import check_tracks

    if (told.board, told.name) != (folder.board.name, path.name):
        raise UsageError(
            f"{path} holds the submission '{told.name}' to the board '{told.board}'; it belongs "
            f"below submissions/{told.name} of that board."
        )
    check_tracks(folder.board, told.tracks)
    return told


def _kept(board: Path, record: RunRecord, origin: str = "") -> Kept:
    below = Path("submissions", origin) if origin else Path()
    picture = below / "galleries" / f"{record.id}.png"
    with disk_errors(board):
        there = (board / picture).is_file()
    return Kept(record, origin, picture.as_posix() if there else None)


def _reports(folder: Path) -> Iterator[ControlReport]:
    from harness.control import load_report

    with disk_errors(folder):
        paths = sorted(folder.glob("*.json"))
    for path in paths:
        yield load_report(path)

"""What a board's view is made of: its folder read, and its records by row and cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.api.errors import IntegrityError, UsageError
from harness.asking.registry import OWN_DISTRIBUTION, registry
from harness.boards.answering import moved_on
from harness.boards.cells import BoardCell, cells_of, identity
from harness.boards.folder import BoardFolder
from harness.boards.freezing import older
from harness.boards.protocol import Board
from harness.boards.signing import signed_by
from harness.control import AnyReport, load_report
from harness.scoring.flags import DISBELIEVED
from harness.store.paths import disk_errors, listed
from harness.store.provenance import sha256_of
from harness.store.reading import strange_files
from harness.store.record import RunRecord
from harness.submissions.cells import places
from harness.submissions.checks import of_counting, ruled_out
from harness.submissions.folder import Submission, SubmissionFolder

LOST = ("failed", "timeout")
"""How a cell ends that should have had a result."""


@dataclass(frozen=True)
class Kept:
    """A record of a board.

    `origin` is the submission it came with, `gallery` where its picture lies below the board's
    folder; empty and None where there is none. `unproven`: it says that its cell cannot be, or
    does not count, and what was asked does not say so. `older`: on an open board, the plugins
    whose source is another one by now. `doubted`: it is too good to be true, or a hidden rerun did
    not bear it out. `again`: on a board that is not held to what it froze, those
    plugins whose versions or options are others by now, so that its cell is to run again.
    """

    record: RunRecord
    origin: str = ""
    gallery: str | None = None
    unproven: bool = False
    doubted: bool = False
    older: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reported:
    """A report on positive controls: the board's own, or of the submission `origin`."""

    report: AnyReport
    origin: str = ""


@dataclass(frozen=True)
class Material:
    """All that a view follows from."""

    board: Board
    kept: tuple[Kept, ...]
    controls: tuple[Reported, ...] = ()
    submissions: tuple[Submission, ...] = ()
    signer: str = ""
    """The fingerprint of who signed the board; empty too where the signature does not fit."""


def gathered(folder: BoardFolder) -> Material:
    """Read a board's folder; IntegrityError for a file that is not what its name says."""
    for fault in strange_files(folder.path):
        raise IntegrityError(f"{fault}.")
    kept = [_kept(folder, record) for record in folder.kept()]
    controls = [Reported(load_report(path)) for path in listed(folder.controls, ".json")]
    submissions = []
    for each in map(SubmissionFolder, folder.submissions):
        own = _described(each.path, each.description, folder)
        submissions.append(own)
        kept += [_kept(folder, record, own.name) for record in each.kept()]
        reports = map(load_report, listed(each.controls, ".json"))
        controls += [Reported(r, own.name) for r in reports if own.hands_in("attack", r.plugin)]
    signer = ""
    with suppress(IntegrityError):  # said where the board is verified
        signer = signed_by(folder.path)
    return Material(folder.board, tuple(kept), tuple(controls), tuple(submissions), signer)


def _described(path: Path, described: Submission, folder: BoardFolder) -> Submission:
    """What a submission says of itself; UsageError unless it is of this board and folder."""
    name, board = described.name, described.board
    if (board, name) != (folder.board.name, path.name):
        raise UsageError(
            f"{path} holds the submission '{name}' to the board '{board}'; it belongs "
            f"below submissions/{name} of that board."
        )
    for track in described.tracks:
        folder.board.track(track)
    return described


def _kept(board: BoardFolder, record: RunRecord, origin: str = "") -> Kept:
    below = Path("submissions", origin) if origin else Path()
    picture = below / "galleries" / f"{record.id}.png"
    with disk_errors(board.path):
        there = (board.path / picture).is_file()
    shown = picture.as_posix() if there else None
    return Kept(
        record,
        origin,
        shown,
        unproven=unproven(record, board.board, origin),
        doubted=doubted(record, board.board),
        older=tuple(older(record, registry())) if board.board.open else (),
        again=_again(record, board.board, origin),
    )


def _again(record: RunRecord, board: Board, origin: str) -> tuple[str, ...]:
    """Whose versions or options have moved on, where `harness matrix` would run the cell again.

    It runs nothing of what strangers handed in, and refuses a board that is not what it froze.
    """
    return () if origin or board.held_to else tuple(moved_on(record, registry()))


def unproven(record: RunRecord, board: Board, origin: str = "") -> bool:
    """Whether a record has no result that counts, for no reason that follows from what was asked.

    A stranger's plugins are installed here or not; what a board shows must not depend on that.
    """
    if record.status != "not_applicable":
        return any(of_counting(record))
    if record.id in board.confirmed:
        return False
    strange = {used.distribution for used in (*record.defense, record.attack)} - {OWN_DISTRIBUTION}
    return bool(origin and strange) or not ruled_out(record)


def doubted(record: RunRecord, board: Board) -> bool:
    """Whether a result does not count until whoever keeps the board has confirmed it."""
    if record.id in board.refuted:
        return True
    flagged = any(flag.name in DISBELIEVED for flag in record.flags)
    return flagged and record.id not in board.confirmed


@dataclass(frozen=True)
class Group:
    """One defense against one attack in one track: a record for each seed, None where missing.

    `origin` is the submission that the cell is of, empty for the board's own.
    """

    cell: BoardCell
    origin: str = ""
    seeds: dict[int, Kept | None] = field(default_factory=dict)

    @property
    def attack(self) -> str:
        """As written."""
        return self.cell.request.attack

    @property
    def kept(self) -> list[Kept]:
        """What there is, by seed."""
        return [kept for _, kept in sorted(self.seeds.items()) if kept]

    @property
    def records(self) -> list[RunRecord]:
        """The records there are, by seed."""
        return [kept.record for kept in self.kept]

    @property
    def unproven(self) -> bool:
        """Whether a result is absent or left out that should be there, but for missing seeds."""
        doubtful = any(kept.unproven or kept.doubted for kept in self.kept)
        return doubtful or (not self.ok and any(r.status in LOST for r in self.records))

    @property
    def ok(self) -> list[RunRecord]:
        """Records with a result."""
        return [record for record in self.records if record.status == "ok"]

    @property
    def counted(self) -> list[RunRecord]:
        """Records whose numbers count: not doubted, of a quick look, or of one who is told."""
        own = [k.record for k in self.kept if k.record.status == "ok" and not k.doubted]
        return [r for r in own if all(flag.name != "unranked" for flag in r.flags)]


@dataclass(frozen=True)
class Line:
    """One defense of one track with its groups. `origin` is the submission that hands it in.

    `beside` are attacks that do not count, whose records still tell what was learned. `alone` are
    cells of accuracy without an attack, at several numbers of private images and rounds.
    """

    track: str
    defense: str
    origin: str
    groups: tuple[Group, ...]
    beside: tuple[Group, ...] = ()
    alone: tuple[Group, ...] = ()


def lines(material: Material) -> list[Line]:
    """Every row of the board and of what was submitted, each cell with its record if there is one.

    The board's own records count before submitted ones, and of those the newest.
    """
    ordered = sorted(material.kept, key=lambda each: (not each.origin, each.record.created))
    answers = {identity(each.record.request): each for each in ordered}
    rows: dict[tuple[str, str], dict[str, Group]] = {}
    for cell, origin in _all_cells(material.board, material.submissions, answers):
        row = rows.setdefault((cell.track, cell.request.defense), {})
        asked = cell.request.model_dump(mode="json", exclude={"device", "seed"})
        group = row.setdefault(sha256_of(asked), Group(cell, origin))
        group.seeds.setdefault(cell.request.seed, answers.get(cell.identity))
    return [_line(*place, [*groups.values()]) for place, groups in rows.items()]


def _line(track: str, defense: str, groups: Sequence[Group]) -> Line:
    attacked, alone = (
        tuple(group for group in groups if group.cell.alone is sort) for sort in (False, True)
    )
    return Line(track, defense, groups[0].origin, attacked, alone=alone)


def _all_cells(
    board: Board, submissions: Iterable[Submission], answers: Mapping[str, Kept]
) -> Iterator[tuple[BoardCell, str]]:
    """The board's cells, then those of submissions, each with the name of its submission.

    A defense has to fill each of its cells. An attack has only those that it answers: what a
    stranger leaves out is no gap in the board.
    """
    yield from ((cell, "") for cell in cells_of(board))
    for each in submissions:
        for place in places(board, each.kind, each.what, each.tracks):
            there = [cells for cells in place if any(c.identity in answers for c in cells)]
            if each.kind == "defense":
                there = there or [place[0]]
            for cells in there[:1]:
                yield from ((cell, each.name) for cell in cells)

"""Whether things are what they say and belong where they lie. Nothing runs, torch is not needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import IntegrityError
from harness.boards.cells import identity
from harness.boards.folder import BoardFolder
from harness.boards.freezing import strange
from harness.boards.protocol import Board
from harness.challenge.files import refusals, sha256_of_file
from harness.control import ControlReport, Measured, load_report
from harness.keys import sha256_of
from harness.leaderboard.numerals import counted
from harness.submissions.cells import places
from harness.submissions.description import Submission, protocol_of
from harness.submissions.folder import RECONSTRUCTIONS, RELEASES, SubmissionFolder
from harness.submissions.verdict import Note

if TYPE_CHECKING:
    from harness.record import RunRecord

Wanted = list[list[list[str]]]
"""The places of a submission, their alternatives, and the identities of the cells of each."""


def wanted_of(told: Submission, board: BoardFolder) -> Wanted:
    """The cells that a submission has to run."""
    found = places(board.board, told.kind, told.what, told.tracks)
    return [[[cell.identity for cell in cells] for cells in place] for place in found]


def json_files(folder: Path) -> list[Path]:
    """The JSON files in a folder by name; none where there is no folder."""
    with refusals(folder):
        return sorted(folder.glob("*.json"))


def of_cell(record: RunRecord, wanted: set[str], board: Board) -> Iterator[Note]:
    """A record is of one of these cells, and of the plugins that the board froze."""
    if identity(record.request) not in wanted:
        yield "broken", f"the board '{board.name}' has no such cell for it"
        return
    for use in strange(board, record):
        yield "broken", f"its {use} is not what the board froze"


def of_plugins(record: RunRecord, told: Submission) -> Iterator[Note]:
    """What ran is what was handed in."""
    named = {(p.name, p.version, p.distribution, p.source_sha256) for p in told.plugins}
    for used in record.defense if told.kind == "defense" else (record.attack,):
        ran = (used.name, used.version, used.distribution, used.source_sha256)
        if ran not in named:
            yield "broken", f"'{used.name}' of this source is not what was handed in"


def of_tensors(folder: SubmissionFolder, told: Submission, record: RunRecord) -> Iterator[Note]:
    """What the attack returned lies there, to the byte; of a defense, also what it released."""
    if "attack" not in record.artifacts:
        return
    yield from _hashed(folder.reconstruction(record), record, "attack", "reconstruction")
    if told.kind == "defense":
        yield from _hashed(folder.release(record), record, "release", "release")


def _hashed(path: Path, record: RunRecord, stage: str, name: str) -> Iterator[Note]:
    with refusals(path):
        there = path.is_file()
    if not there:
        yield "cannot", f"its {name} is not there"
    elif sha256_of_file(path, name) != record.artifacts[stage].sha256:
        yield "broken", f"its {name} does not have the hash that the record gives"


def of_report(path: Path) -> Iterator[Note]:
    """A report on positive controls has its id and its name, and says what follows from it."""
    report = load_report(path)
    if path.stem != f"{report.attack.name}-{sha256_of(report.attack.config)[:12]}":
        yield "broken", "its name is not that of its attack and options"
    for fault in _contradictions(report):
        yield "broken", fault


def _contradictions(report: ControlReport) -> Iterator[str]:
    if not report.results:
        yield "it holds no controls"
    if report.passed != all(result.passed for result in report.results):
        yield "it does not say of the whole what it says of the parts"
    for result in report.results:
        there = result.reached is not None and result.status == "ok"
        found = Measured(result.reached or 0.0, None, result.leaks_more or "higher")
        if result.passed != (there and found.reaches(result.control.at_least)):
            yield f"its control by '{result.control.metric}' did not end as it says"


def of_description(
    folder: SubmissionFolder, told: Submission, board: BoardFolder
) -> Iterator[Note]:
    """A submission is for the board as it is, and its controls are as it says."""
    if protocol_of(board.board) != told.protocol_sha256:
        yield "differs", f"the board '{told.board}' has changed since"
    standing = _standing(folder, told)
    if told.control not in standing:
        yield "broken", f"it says '{told.control}' of its controls, not '{standing[0]}'"


def _standing(folder: SubmissionFolder, told: Submission) -> tuple[str, ...]:
    if told.kind == "defense":
        return ("no attack",)
    reports = json_files(folder.controls)
    if not reports:
        return ("not run", "none declared")
    return ("passed",) if all(map(_passed, reports)) else ("failed",)


def _passed(path: Path) -> bool:
    try:
        return load_report(path).passed
    except IntegrityError:  # said where the report is verified
        return False


def of_files(folder: SubmissionFolder, told: Submission, paths: Iterable[Path]) -> Iterator[Note]:
    """The records are those that the description names, and no tensors lie there without one."""
    there = {path.stem for path in paths}
    for name in sorted(there - {*told.records}):
        yield "broken", f"it does not name the record {name[:12]}"
    for name in sorted({*told.records} - there):
        yield "broken", f"it names the record {name[:12]}, which is not there"
    with refusals(folder.path):
        strays = {path.stem for path in (folder.path / RECONSTRUCTIONS).glob("*")} - there
        releases = any((folder.path / RELEASES).glob("*"))
    for name in sorted(strays):
        yield "broken", f"the reconstruction {name[:12]} belongs to no record"
    if told.kind == "attack" and releases:
        yield "broken", "it holds releases, which only a defense's submission does"


def of_cells(told: Submission, there: set[str], wanted: Wanted) -> Iterator[Note]:
    """Cells are missing where the description says so; `there` are those with a record."""
    missing = sum(min(len({*cells} - there) for cells in place) for place in wanted)
    if missing > told.missing:
        yield "broken", f"{counted(missing, 'cell')} without a record, and it says {told.missing}"
    elif told.missing:
        yield "cannot", f"{counted(told.missing, 'cell')} missing"


def of_board(requested: Iterable[str], wanted: set[str]) -> Iterator[Note]:
    """No cell of a board has two records. That some have none is no fault."""
    answers = Counter(requested)
    for count in answers.values():
        if count > 1:
            yield "broken", f"{count} records are of one cell"
    yield "ok", f"{len(wanted & answers.keys())} of {len(wanted)} cells have a record"

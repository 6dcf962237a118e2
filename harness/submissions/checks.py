"""What is checked without running anything, and what that comes to. Torch is not needed.

Whether things are what they say and belong where they lie, and what follows from what was asked
alone: whether a cell can be, and whether its result counts. Of plugins that are not installed
nothing follows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel

from harness.api.errors import EXIT_FAILED, EXIT_INTEGRITY, IntegrityError, UsageError
from harness.asking.plan import Cell, plan, resolved
from harness.asking.registry import OWN_DISTRIBUTION, registry
from harness.boards.answering import moved_on
from harness.boards.cells import identity
from harness.boards.folder import BoardFolder
from harness.boards.freezing import foreign, older, strange
from harness.boards.protocol import Board
from harness.boards.signing import signature, signed_by
from harness.control import (
    AnyReport,
    ControlResult,
    direction,
    judged,
    load_report,
    reaches,
)
from harness.scoring.flags import uncounted
from harness.store.answers import BOARD
from harness.store.files import sha256_of_file
from harness.store.paths import disk_errors, listed
from harness.store.reading import strange_file
from harness.store.record import DIGEST, SCHEMA, RunRecord
from harness.submissions.cells import places
from harness.submissions.folder import (
    RECONSTRUCTIONS,
    RELEASES,
    Submission,
    SubmissionFolder,
    handed_in,
    protocol_of,
)
from harness.submissions.siblings import between, disagreements
from harness.submissions.sums import BOUNDED, PAIRED, within

Outcome = Literal["ok", "differs", "cannot", "broken"]
What = Literal["record", "records", "control", "submission", "board"]
Depth = Literal["", "consistent", "judged again", "run again"]
"""How far a record was verified and held: by arithmetic alone, by its stored answers, by a run."""
DEPTHS = get_args(Depth)
Note = tuple[Outcome, str]
"""One thing that was checked, and what came of it."""

EXIT: dict[Outcome, int] = {
    "broken": EXIT_INTEGRITY,
    "differs": EXIT_FAILED,
    "cannot": EXIT_FAILED,
    "ok": 0,
}
"""The exit code of each outcome, the worst first."""


class Verdict(BaseModel, frozen=True, extra="forbid"):
    """Of one thing: a record, records together, a control's report, a submission, a board.

    `ok`: all that was checked holds. `differs`: judging or running again gave something else.
    `cannot`: something could not be checked, for the reason in `notes`. `broken`: it is not what
    its hash says, contradicts itself or its siblings, or does not belong where it is. `depth` is of
    records.
    """

    what: What
    path: str
    title: str = ""
    outcome: Outcome
    depth: Depth = ""
    notes: tuple[str, ...] = ()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """What several come to together; `ok` where there are none."""
    there = set(outcomes)
    return next(outcome for outcome in EXIT if outcome in there or outcome == "ok")


def verdict(
    what: What, path: Path, title: str, notes: Iterable[Note], depth: Depth = ""
) -> Verdict:
    """What several notes on one thing come to; what is broken holds to no depth."""
    checked = list(notes)
    outcome = worst(outcome for outcome, _ in checked)
    return Verdict(
        what=what,
        path=str(path),
        title=title,
        outcome=outcome,
        depth="" if outcome == "broken" else depth,
        notes=tuple(dict.fromkeys(text for _, text in checked)),
    )


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0 all ok, 1 something differs or could not be checked, 3 something is broken."""
    return EXIT[worst(each.outcome for each in verdicts)]


Wanted = list[list[list[str]]]
"""The places of a submission, their alternatives, and the identities of the cells of each."""


def wanted_of(submission: Submission, board: BoardFolder) -> Wanted:
    """The cells that a submission has to run."""
    found = places(board.board, submission.kind, submission.what, submission.tracks)
    return [[[cell.identity for cell in cells] for cells in place] for place in found]


def of_cell(record: RunRecord, wanted: set[str], board: Board) -> Iterator[Note]:
    """A record is of one of these cells, and of the plugins that the board froze."""
    if identity(record.request) not in wanted:
        yield "broken", f"the board '{board.name}' has no such cell for it"
        return
    yield from of_make(record, board)
    for use in strange(board, record):
        yield "broken", f"its {use} is not what the board froze"


def of_make(record: RunRecord, board: Board) -> Iterator[Note]:
    """A record is of today's schema, and names what comes with the harness as from there."""
    if record.version < PAIRED:
        yield "broken", f"it is of version {record.version}, whose gains nobody can recompute"
    elif record.schema_ != SCHEMA and record.id not in board.earlier:
        yield (
            "broken",
            f"it is of version {record.version}, and a board takes records of today's; its "
            "`earlier` does not list it",
        )
    for name, distribution in foreign(record, registry()):
        yield "broken", f"'{name}' comes with the harness, and it says from '{distribution}'"


def of_plugins(record: RunRecord, submission: Submission) -> Iterator[Note]:
    """What ran is what was handed in."""
    for used in handed_in(submission.kind, record):
        if not submission.hands_in(submission.kind, used):
            yield "broken", f"'{used.name}' of this source is not what was handed in"


def of_today(record: RunRecord, board: Board) -> Iterator[Note]:
    """What comes with the harness ran in the source, version and options that it has here."""
    known = registry()
    for name in dict.fromkeys((*older(record, known), *moved_on(record, known))):
        if record.id not in board.confirmed:
            yield (
                "cannot",
                f"its '{name}' is not what it is here, by source, version or options, which only "
                "running it again (--rerun) can judge; the board's `confirmed` does not list it",
            )


def of_tensors(folder: SubmissionFolder, record: RunRecord) -> Iterator[Note]:
    """What the attack returned lies there, to the byte; of a defense, also what it released."""
    for path, stage, stored in folder.tensors(record):
        name = "reconstruction" if stage == "attack" else stage
        with disk_errors(path):
            there = os.path.lexists(path)
            fault = strange_file(path, stored.bytes) if there else ""
        if not there:
            yield "cannot", f"its {name} is not there"
        elif fault:
            yield "broken", f"its {name} {fault}"
        elif sha256_of_file(path, name) != stored.sha256:
            yield "broken", f"its {name} does not have the hash that the record gives"


def of_report(path: Path, submission: Submission | None = None) -> Iterator[Note]:
    """A report on positive controls has its id and its name, and says what follows from it.

    A submission reports on the attack that it hands in and on no other.
    """
    report = load_report(path)
    if submission and not submission.hands_in("attack", report.plugin):
        yield "broken", f"'{report.plugin.name}' as it ran here is not what is handed in"
    if path.name != report.file_name:
        yield "broken", "its name is not that of its plugin and options"
    if not report.results:
        yield "broken", "it holds no controls"
    if not _as_declared(report):
        yield "broken", f"its controls are not those that '{report.plugin.name}' declares"
    if report.passed != all(result.passed for result in report.results):
        yield "broken", "it does not say of the whole what it says of the parts"
    for result in report.results:
        if not _ended_so(result):
            yield "broken", f"its control by '{result.control.metric}' did not end as it says"


def control_records(folder: BoardFolder) -> set[str]:
    """The records that a folder's reports on controls name; a broken report names none."""
    found = set[str]()
    for path in listed(folder.controls, ".json"):
        with suppress(IntegrityError):
            found |= {result.record for result in load_report(path).results}
    return {name for name in found if re.fullmatch(DIGEST, name)}


def of_control_cells(path: Path) -> Iterator[Note]:
    """A report says of its controls what the records of their cells give, where these are kept."""
    report, cells = load_report(path), BoardFolder(path.parent)
    for result in report.results:
        kept = cells.records.path(result.record)
        with disk_errors(kept):
            there = bool(re.fullmatch(DIGEST, result.record)) and kept.is_file()
        if there and judged(result.control, cells.load(kept)) != result:
            yield (
                "broken",
                f"its control by '{result.control.metric}' is not what record "
                f"{result.record[:12]} gives",
            )


def of_control_record(record: RunRecord, named: set[str], board: Board) -> Iterator[Note]:
    """The record of a control's cell is named by a report, and made as the board's own are."""
    yield from of_make(record, board)
    if record.id not in named:
        yield "broken", "no report on controls names it"


def _as_declared(report: AnyReport) -> bool:
    """Whether a report is on its plugin's own controls; a stranger's may not be installed here."""
    try:
        spec = registry().spec(report.kind, report.plugin.name)
    except UsageError:
        return True
    declared = tuple(result.control for result in report.results)
    return bool(spec.version != report.plugin.version or spec.controls == declared)


def _ended_so(result: ControlResult) -> bool:
    """Whether a control was passed or not as what it reached, and its direction, say."""
    if result.reached is None or result.status != "ok":
        return not result.passed
    side = direction(result.control.metric)
    inside = result.ci is None or within(result.reached, result.ci)
    enough = reaches(result.reached, result.control.at_least, side)
    return result.leaks_more == side and inside and result.passed == enough


def of_description(
    folder: SubmissionFolder, submission: Submission, board: BoardFolder
) -> Iterator[Note]:
    """A submission is for the board as it is, and its controls are as it says."""
    if protocol_of(board.board) != submission.protocol_sha256:
        yield "differs", f"the board '{submission.board}' has changed since"
    standing = _standing(folder, submission)
    if submission.control not in standing:
        yield "broken", f"it says '{submission.control}' of its controls, not '{standing[0]}'"


def _standing(folder: SubmissionFolder, submission: Submission) -> tuple[str, ...]:
    if submission.kind == "defense":
        return ("no attack",)
    reports = listed(folder.controls, ".json")
    if not reports:
        return ("not run", "none declared")
    with suppress(IntegrityError):  # said where the report is verified
        if all(load_report(path).passed for path in reports):
            return ("passed",)
    return ("failed",)


def of_files(
    folder: SubmissionFolder, submission: Submission, paths: Iterable[Path]
) -> Iterator[Note]:
    """The records are those that the description names, and no tensors lie there without one."""
    there = {path.stem for path in paths}
    for name in sorted(there - {*submission.records}):
        yield "broken", f"it does not name the record {name[:12]}"
    for name in sorted({*submission.records} - there):
        yield "broken", f"it names the record {name[:12]}, which is not there"
    strays = {path.stem for path in listed(folder.path / RECONSTRUCTIONS)} - there
    releases = listed(folder.path / RELEASES)
    for name in sorted(strays):
        yield "broken", f"the reconstruction {name[:12]} belongs to no record"
    if submission.kind == "attack" and releases:
        yield "broken", "it holds releases, which only a defense's submission does"


def of_cells(submission: Submission, there: set[str], wanted: Wanted) -> Iterator[Note]:
    """Cells are missing where the description says so; `there` are those with a record."""
    missing = sum(min(len({*cells} - there) for cells in place) for place in wanted)
    if missing > submission.missing:
        yield "broken", f"{_cells(missing)} without a record, and it says {submission.missing}"
    elif submission.missing:
        yield "cannot", f"{_cells(submission.missing)} missing"


def _cells(number: int) -> str:
    return f"{number:,} cell" + "s" * (number != 1)


def of_board(
    own: Iterable[str], submitted: Iterable[str], wanted: set[str], board: Board
) -> Iterator[Note]:
    """No cell has two records, on the board or handed in. That some have none is no fault."""
    here = [*own]
    for count in Counter([*here, *submitted]).values():
        if count > 1:
            yield "broken", f"{count} records are of one cell"
    yield "ok", f"{len(wanted & {*here})} of {len(wanted)} cells have a record"
    if board.open:
        yield "ok", "it is open: its records are held to no frozen list"


def of_signature(folder: Path) -> Note:
    """Who signed a board, or that nobody did; broken where what is signed has changed."""
    try:
        return "ok", signature(signed_by(folder))
    except IntegrityError as error:
        return "broken", str(error)


def of_siblings(records: Iterable[RunRecord]) -> Iterator[Note]:
    """Records of one release, of one training or of the same images say the same of these."""
    yield from (("broken", str(found)) for found in disagreements(records))


def of_sibling(record: RunRecord, siblings: Iterable[RunRecord]) -> Iterator[Note]:
    """Likewise of one record among those that it lies with."""
    found = between((each for each in siblings if each.id != record.id), [record], here=True)
    yield from (("broken", str(each)) for each in found)


def of_elsewhere(
    records: Iterable[RunRecord], own: Iterable[RunRecord], board: Board
) -> Iterator[Note]:
    """Likewise of records that were handed in, and those of their board.

    Another machine may release other bits, so that the one who merges has to confirm them.
    """
    for found in between(own, records, here=False):
        if found.other.id not in board.confirmed:
            yield (
                "cannot",
                f"{found}; running it again (--rerun) tells who is right, and the board's "
                "`confirmed` does not list it",
            )


def of_version(record: RunRecord) -> Iterator[Note]:
    """Before version 5 records keep too little to recompute every number."""
    if record.version < PAIRED and record.privacy:
        yield "ok", f"records of version {record.version} do not keep what their gains are of"


def of_ceilings(record: RunRecord) -> Iterator[Note]:
    """Ceilings are held to their own numbers and their siblings', which computes none of them."""
    if any(proof.quantities for proof in record.ceilings.values()):
        yield "ok", "its ceilings were not computed again, which --rerun does"


def of_answers(folder: BoardFolder, there: Iterable[RunRecord]) -> Iterator[Note]:
    """Answers that are kept belong to records and take no more room than a board has for them."""
    known, paths = {record.id for record in there}, folder.answer_paths
    size = folder.answer_bytes + folder.control_cells.answer_bytes
    for path in paths:
        if path.stem not in known:
            yield "broken", f"the answer {path.stem[:12]} belongs to no record"
    if size > BOARD:
        yield "broken", f"its answers take {size:,} bytes, and a board keeps {BOARD:,} at most"
    if paths:
        yield "ok", f"{len(paths)} answers are kept"


UNRANKED = "unranked"
"""The flag of results that do not count."""


def of_absence(record: RunRecord, board: Board) -> Iterator[Note]:
    """That a cell cannot be follows from planning it; what was found at work is to be confirmed."""
    if record.status != "not_applicable" or record.id in board.confirmed:
        return
    if not ruled_out(record):
        yield (
            "cannot",
            "it says that its attack does not apply, which only running it again (--rerun) can "
            "tell; the board's `confirmed` does not list it",
        )


def ruled_out(record: RunRecord) -> bool:
    """Whether planning a record's cell finds that it cannot be."""
    cell = _planned(record)
    return cell is not None and cell.reason is not None


def of_counting(record: RunRecord) -> Iterator[Note]:
    """A result is left out of the count for what was asked, and for nothing else."""
    if record.status != "ok":
        return
    flagged = any(flag.name == UNRANKED for flag in record.flags)
    try:
        reasons = _uncounted(record)
    except UsageError as error:
        if flagged:
            yield "cannot", f"whether it is rightly flagged as {UNRANKED}: {error}"
        return
    if flagged and not reasons:
        yield "broken", f"it is flagged as {UNRANKED}, and nothing that was asked makes it so"
    if reasons and not flagged:
        yield "broken", f"it is not flagged as {UNRANKED}: {reasons[0]}"


def of_members(record: RunRecord) -> Iterator[Note]:
    """A record names several attacks where its attack is many, and nowhere else."""
    name = record.attack.name
    try:
        many = bool(registry().spec("attacks", name).members)
    except UsageError:
        if record.members:
            yield "cannot", f"whether '{name}', which is not installed here, is many attacks"
        return
    if record.members and not many:
        yield "broken", f"it names many attacks, and '{name}' is one"
    if many and record.privacy and not record.members:
        yield "broken", f"'{name}' is many attacks, and it names none of them"


def of_knowledge(record: RunRecord) -> Iterator[Note]:
    """The attack read what it reads of such a release, and knew what it is then granted."""
    cell = _planned(record)
    if record.status != "ok" or cell is None:
        return
    if cell.reason is not None:
        yield "broken", f"it has scores, and such a cell cannot be: {cell.reason}"
    if not cell.attacks:
        return
    if record.release_kind != cell.kind:
        yield "broken", f"{record.release_kind} were released, and such a cell releases {cell.kind}"
    if {*record.channels_used} != cell.channels:
        named = ", ".join(sorted(cell.channels))
        yield "broken", f"its attack is given {named}, and the record says something else"


def of_asked_ceilings(record: RunRecord) -> Iterator[Note]:
    """A record has the ceilings that were asked for, be it with a reason why they say nothing.

    Only of those that come with the harness: a stranger's may not have been installed there.
    """
    cell, known = _planned(record), registry()
    if record.status != "ok" or cell is None or record.version < BOUNDED:
        return
    for name in sorted(cell.ceilings.keys() - record.ceilings.keys()):
        if known.origin("ceilings", name).distribution == OWN_DISTRIBUTION:
            yield "broken", f"it was asked for the ceiling '{name}' and does not have it"


def _planned(record: RunRecord) -> Cell | None:
    """The cell of a record; None where its attack or a defense is not to be had as it ran."""
    try:
        cell = plan(record.request, registry())
    except UsageError:
        return None
    here = {(plugin.name, plugin.spec.version) for plugin in (cell.attack, *cell.defenses)}
    ran = {(used.name, used.version) for used in (record.attack, *record.defense)}
    return cell if here == ran else None


def _uncounted(record: RunRecord) -> list[str]:
    """Why a record's result does not count; UsageError where that is its attack's to say."""
    request, known = record.request, registry()
    model = known.spec("threat_models", request.threat_model)
    if reasons := uncounted(request.preset, model):
        return [flag.message for flag in reasons]
    attack = resolved("attacks", request.attack, request.preset, known)
    return [flag.message for flag in uncounted(request.preset, model, attack)]

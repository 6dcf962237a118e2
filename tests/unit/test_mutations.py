"""Whatever is done to the files of a board, no traceback and no wrong row.

HARNESS_MUTATIONS says how many times, instead of a thousand.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from handed_in import make_board, record_of, report, submit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import as_json, changed_bytes, changed_values, damaged_json, damaged_text

from harness.api import HarnessError, IntegrityError
from harness.boards.cells import BoardCell, cells_of
from harness.boards.folder import BoardFolder
from harness.boards.protocol import FILE as BOARD_FILE
from harness.boards.protocol import read_board
from harness.control import ControlReport, load_report
from harness.keys import canonical_json
from harness.leaderboard.build import board_view
from harness.leaderboard.checking import faults_of
from harness.leaderboard.material import gathered
from harness.leaderboard.publishing import differing, files_of, write
from harness.record import VOLATILE, RunRecord, fingerprint, parse_record
from harness.request import make_request
from harness.store.records import Records
from harness.submissions.description import FILE, read_submission
from harness.submissions.folder import SubmissionFolder
from harness.submissions.sums import faults
from harness.submissions.verdict import exit_code
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core
TOTAL = int(os.environ.get("HARNESS_MUTATIONS", "1000"))
ASKED = {"attack": "linear", "defense": "mixup[k=2]"}
RECORD = record_of(BoardCell("once", ASKED, make_request(**ASKED)))
REPORT = report()
SAID = {"authors", "paper", "license", "name"}
"""What a submission says of itself and nobody can check."""


def times(share: float) -> settings:
    return settings(
        max_examples=max(10, int(TOTAL * share)),
        deadline=None,
        derandomize="HARNESS_MUTATIONS" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> BoardFolder:
    return make_board(tmp_path_factory.mktemp("boards") / "board")


@pytest.fixture(scope="module")
def mine(board: BoardFolder) -> SubmissionFolder:
    return submit(board)


def under_the_id(record: RunRecord) -> dict[str, Any]:
    """What of a record its id is a hash of."""
    values = {k: v for k, v in record.canonical().items() if k not in VOLATILE}
    free = {k: v for k, v in values["request"].items() if k not in ("device", "threads")}
    hashes = {name: stored["sha256"] for name, stored in values["artifacts"].items()}
    return {**values, "request": free, "artifacts": hashes}


@times(0.3)
@given(data=damaged_json(RECORD.json_text().encode()))
def test_a_record_is_what_it_was_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "record.json"
    path.write_bytes(data)
    try:
        record = Records(path.parent).load(path)
    except IntegrityError:
        return
    assert under_the_id(record) == under_the_id(RECORD)


@times(0.1)
@given(
    metric=st.sampled_from(["snr_db", "ssim"]),
    name=st.sampled_from(["mean", "std", "median", "worst", "null", "gain"]),
    by=st.floats(0.01, 100),
    up=st.booleans(),
)
def test_an_edited_score_is_seen_though_its_id_is_right(
    metric: str, name: str, by: float, up: bool
) -> None:
    values = json.loads(RECORD.json_text())
    values["privacy"][metric][name] += by if up else -by
    values["id"] = fingerprint(values)
    assert faults(parse_record(values))


@times(0.05)
@given(image=st.integers(0, 7), by=st.floats(0.01, 100), up=st.booleans())
def test_so_is_the_edited_score_of_an_image(image: int, by: float, up: bool) -> None:
    values = json.loads(RECORD.json_text())
    values["by_image"]["snr_db"]["attack"][image] += by if up else -by
    values["id"] = fingerprint(values)
    assert faults(parse_record(values))


@times(0.1)
@given(values=changed_values(json.loads(RECORD.json_text())))
def test_a_record_that_was_sealed_again_ends_in_no_traceback(
    board: BoardFolder, values: dict[str, Any]
) -> None:
    try:
        values["id"] = fingerprint(values)
        path = board.path / "records" / f"{values['id']}.json"
        path.write_bytes(as_json(values))
    except (ValueError, TypeError, AttributeError, KeyError):
        return  # nobody can seal that
    try:
        faults_of(gathered(board))
        verified(path)
    except HarnessError:
        pass
    finally:
        path.unlink()


@times(0.1)
@given(data=damaged_json(canonical_json(REPORT.canonical()).encode()))
def test_a_report_is_what_it_was_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "linear-0.json"
    path.write_bytes(data)
    try:
        found = load_report(path)
    except IntegrityError:
        return
    assert unvarying(found) == unvarying(REPORT)


def unvarying(found: ControlReport) -> dict[str, Any]:
    return found.model_dump(exclude={"created", "code", "packages"})


@times(0.15)
@given(data=st.data())
def test_a_board_can_be_read_or_is_refused(
    board: BoardFolder, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    damaged = data.draw(damaged_text((board.path / BOARD_FILE).read_bytes()))
    (folder / BOARD_FILE).write_bytes(damaged)
    try:
        found = cells_of(read_board(folder))
    except HarnessError:
        return
    assert found or not tomllib.loads(damaged.decode())["tracks"]


@times(0.15)
@given(data=st.data())
def test_a_submission_that_says_something_else_does_not_pass(
    board: BoardFolder, mine: SubmissionFolder, data: st.DataObject
) -> None:
    original = (mine.path / FILE).read_bytes()
    before = read_submission(mine.path)
    damaged = data.draw(damaged_text(original))
    try:
        (mine.path / FILE).write_bytes(damaged)
        passed = exit_code(verified(mine.path)) == 0
        if passed:
            after = read_submission(mine.path)
            assert before.model_dump(exclude=SAID) == after.model_dump(exclude=SAID)
    except HarnessError:
        pass
    finally:
        (mine.path / FILE).write_bytes(original)


@pytest.fixture(scope="module")
def published(board: BoardFolder, mine: SubmissionFolder) -> dict[str, bytes]:
    files = files_of(board_view(gathered(board)))
    write(board.path, files)
    assert differing(board.path, files) == []
    return files


@times(0.05)
@given(name=st.sampled_from(["README.md", "leaderboard.csv", "index.html"]), data=st.data())
def test_a_table_or_page_that_was_edited_is_seen(
    board: BoardFolder, published: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    original = published[name]
    damaged = data.draw(changed_bytes(original))
    (board.path / name).write_bytes(damaged)
    assert differing(board.path, published) == ([] if damaged == original else [name])
    (board.path / name).write_bytes(original)


@times(0.05)
@given(data=st.data())
def test_an_edited_record_changes_no_row(
    board: BoardFolder, mine: SubmissionFolder, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(board.path.glob("**/records/*.json"))))
    original = path.read_bytes()
    path.write_bytes(data.draw(damaged_json(original)))
    try:
        found = gathered(board)
    except HarnessError:
        return
    finally:
        path.write_bytes(original)
    whole = [under_the_id(kept.record) for kept in found.kept]
    assert whole == [under_the_id(kept.record) for kept in gathered(board).kept]


def verified(path: Path) -> list[Any]:
    with Verifier(path, judge=False) as verifier:
        return list(verifier.verify(str(path)))

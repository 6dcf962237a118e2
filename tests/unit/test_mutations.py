"""Whatever is done to the files of a board, no traceback and no wrong row.

HARNESS_MUTATIONS says how many times, instead of a thousand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from handed_in import make_board, record_of, report, submit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import (
    as_json,
    changed_bytes,
    changed_values,
    damaged_json,
    damaged_text,
    excused,
    resealed,
    turned,
)

from harness.api import HarnessError, IntegrityError
from harness.asking.request import make_request
from harness.boards.cells import BoardCell
from harness.boards.folder import BoardFolder
from harness.boards.protocol import FILE as BOARD_FILE
from harness.boards.protocol import read_board
from harness.control import ControlReport, load_report
from harness.drawing.publishing import differing, files_of, write
from harness.results.build import board_view
from harness.results.material import gathered
from harness.results.view import RowView
from harness.store.provenance import canonical_json, sha256_of
from harness.store.record import VOLATILE, Records, RunRecord, fingerprint, parse_record
from harness.submissions.checks import exit_code
from harness.submissions.folder import FILE, SubmissionFolder, protocol_of
from harness.submissions.sums import faults
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
        values = resealed(values)
        path = board.path / "records" / f"{values['id']}.json"
        path.write_bytes(as_json(values))
    except (ValueError, TypeError, AttributeError, KeyError):
        return  # nobody can seal that
    try:
        board_view(gathered(board))
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
def test_another_protocol_does_not_pass_for_the_one_that_was_filled(
    board: BoardFolder, mine: SubmissionFolder, data: st.DataObject
) -> None:
    path = board.path / BOARD_FILE
    before, damaged = read_board(board.path), data.draw(damaged_text(path.read_bytes()))
    with instead(path, path, damaged):
        try:
            passed = exit_code(verified(board.path)) == 0
            after = read_board(board.path)
        except HarnessError:
            return
    if passed:
        assert protocol_of(after) == protocol_of(before)


@times(0.15)
@given(data=st.data())
def test_a_submission_that_says_something_else_does_not_pass(
    board: BoardFolder, mine: SubmissionFolder, data: st.DataObject
) -> None:
    original = (mine.path / FILE).read_bytes()
    before = SubmissionFolder(mine.path).description
    damaged = data.draw(damaged_text(original))
    try:
        (mine.path / FILE).write_bytes(damaged)
        passed = exit_code(verified(mine.path)) == 0
        if passed:
            after = SubmissionFolder(mine.path).description
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


@pytest.fixture(scope="module")
def contested(tmp_path_factory: pytest.TempPathFactory) -> BoardFolder:
    """A board of which one attack failed its controls, with a submission."""
    folder = make_board(tmp_path_factory.mktemp("contested") / "board")
    folder.keep_control(report("identity", 3.0))
    submit(folder)
    return folder


@pytest.fixture(scope="module")
def before(contested: BoardFolder) -> dict[str, RowView]:
    return shown(contested)


@contextmanager
def instead(path: Path, other: Path, data: bytes) -> Iterator[None]:
    """For as long as this lasts, one file in place of another."""
    original = path.read_bytes() if path.exists() else None
    path.unlink(missing_ok=True)
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(data)
    try:
        yield
    finally:
        other.unlink()
        if original is not None:
            path.write_bytes(original)


def shown(board: BoardFolder) -> dict[str, RowView]:
    """Its rows by track and defense."""
    view = board_view(gathered(board))
    return {f"{row.track} {row.defense}": row for track in view.tracks for row in track.rows}


def nothing_gained(board: BoardFolder, before: dict[str, RowView]) -> bool:
    """Whether verifying refuses a board, or no row stands better than it did."""
    try:
        if exit_code(verified(board.path)):
            return True
        after = shown(board)
    except HarnessError:
        return True
    return not any(better(row, before[name]) for name, row in after.items())


def better(row: RowView, before: RowView) -> bool:
    """Verified that was not; or without saying that it lacks results, of less leak or more use."""
    now, then = ({cell.attack for cell in each.cells if cell.verified} for each in (row, before))
    if row.verified > before.verified or not now <= then:
        return True
    if any(flag.name in ("incomplete", "seed_failed", "seeds_missing") for flag in row.flags):
        return False
    gains = [(leak.gain.value, before.leaks[name].gain.value) for name, leak in row.leaks.items()]
    learned = (row.accuracy.value, before.accuracy.value) if row.accuracy else (0, 0)
    return any(less < more for less, more in gains) or learned[0] > learned[1]


def test_there_is_something_to_gain(contested: BoardFolder, before: dict[str, RowView]) -> None:
    assert exit_code(verified(contested.path)) == 0
    assert len(before) == 3
    assert not any(row.verified for row in before.values())
    assert nothing_gained(contested, before)


@times(0.15)
@given(data=st.data())
def test_a_result_cannot_be_turned_into_a_better_one(
    contested: BoardFolder, before: dict[str, RowView], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(contested.path.glob("**/records/*.json"))))
    original = json.loads(path.read_bytes())
    values = data.draw(turned(original))
    with instead(path, path.with_name(f"{values['id']}.json"), as_json(values)):
        assert nothing_gained(contested, before)


@times(0.15)
@given(data=st.data())
def test_nor_by_any_other_change_that_was_sealed(
    contested: BoardFolder, before: dict[str, RowView], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(contested.path.glob("**/records/*.json"))))
    original = json.loads(path.read_bytes())
    values = data.draw(changed_values(original))
    try:
        values = resealed(values)
        sealed = as_json(values)
    except (ValueError, TypeError, AttributeError, KeyError):
        return  # nobody can seal that
    with instead(path, path.with_name(f"{values['id']}.json"), sealed):
        assert nothing_gained(contested, before)


@times(0.15)
@given(data=st.data(), submitted=st.booleans())
def test_controls_that_were_not_passed_stay_so(
    contested: BoardFolder, before: dict[str, RowView], data: st.DataObject, submitted: bool
) -> None:
    (path,) = contested.controls.glob("identity-*.json")
    values = data.draw(excused(json.loads(path.read_bytes())))
    (mine,) = contested.submissions
    place = mine / "controls" / path.name if submitted else path
    with instead(place, place, as_json(values)):
        assert nothing_gained(contested, before)
        if submitted:  # and even where nobody verifies
            assert shown(contested) == before


@times(0.1)
@given(data=st.data())
def test_nor_by_any_other_change_of_a_report(
    contested: BoardFolder, before: dict[str, RowView], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(sorted(contested.controls.glob("*.json"))))
    values = data.draw(changed_values(json.loads(path.read_bytes())))
    kept = {k: v for k, v in values.items() if k not in ("id", "created", "code", "packages")}
    try:
        sealed = as_json(values | {"id": sha256_of(kept)})
    except (ValueError, TypeError):
        return  # nobody can seal that
    with instead(path, path, sealed):
        assert nothing_gained(contested, before)


def verified(path: Path) -> list[Any]:
    with Verifier(path, judge=False) as verifier:
        return list(verifier.verify(str(path)))

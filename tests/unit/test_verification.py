"""What is verified without running anything, and how tampering ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from handed_in import CELLS, make_board, record_of, submit

from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.record import fingerprint
from harness.submissions.folder import SubmissionFolder
from harness.submissions.verdict import Verdict, exit_code
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core


@pytest.fixture
def board(tmp_path: Path) -> BoardFolder:
    return make_board(tmp_path / "board")


@pytest.fixture
def mine(board: BoardFolder) -> SubmissionFolder:
    return submit(board)


def verified(path: Path) -> list[Verdict]:
    with Verifier(path, judge=False) as verifier:
        return list(verifier.verify(str(path)))


def test_a_board_with_a_submission_holds(board: BoardFolder, mine: SubmissionFolder) -> None:
    found = verified(board.path)
    assert {each.outcome for each in found} == {"ok"}
    assert len(found) == CELLS + 1 + len(mine.description.records) + 2
    assert found[-1].notes == (f"{CELLS} of {CELLS} cells have a record",)
    assert exit_code(found) == 0


def test_so_do_its_parts(board: BoardFolder, mine: SubmissionFolder) -> None:
    record = next((board.path / "records").iterdir())
    handed_in = next((mine.path / "records").iterdir())
    for path in (record, handed_in, mine.path, board.path / "records"):
        assert exit_code(verified(path)) == 0


def test_missing_cells_of_a_board_are_no_fault(board: BoardFolder) -> None:
    next((board.path / "records").iterdir()).unlink()
    assert verified(board.path)[-1].notes == (f"{CELLS - 1} of {CELLS} cells have a record",)
    assert exit_code(verified(board.path)) == 0


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def one(folder: Path, pattern: str = "records/*.json") -> Path:
    return sorted(folder.glob(pattern))[0]


def reseal(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Edit a record and give it the id that it should then have."""
    values = json.loads(path.read_bytes())
    change(values)
    values["id"] = fingerprint(values)
    path.unlink()
    path.with_name(f"{values['id']}.json").write_text(json.dumps(values))


ON_A_BOARD: dict[str, Callable[[BoardFolder], object]] = {
    "do not match its id": lambda b: edit(one(b.path), '"device":"cpu"', '"device":"cuda"'),
    "is not a record": lambda b: one(b.path).write_text("[" * 100_000),
    "has been changed": lambda b: one(b.path).rename(b.path / "records" / "other.json"),
    "owner's key of its own": lambda b: reseal(
        one(b.path), lambda v: v.update(seeds={"seed": 0, "owner_key": "sha256:1"})
    ),
    "no such cell": lambda b: reseal(one(b.path), lambda v: v["request"].update(private_size=41)),
    "records are of one cell": lambda b: b.keep(
        record_of(cells_of(b.board)[0]).model_copy(update={"verdict": "another"}).sealed()
    ),
    "its mean": lambda b: reseal(one(b.path), lambda v: v["privacy"]["snr_db"].update(mean=1.0)),
    "is no report": lambda b: edit(one(b.path, "controls/*"), "50.0", "60.0"),
    "not that of its attack": lambda b: one(b.path, "controls/*").rename(
        b.controls / "linear-0.json"
    ),
}


@pytest.mark.parametrize("told", ON_A_BOARD)
def test_tampering_with_a_board_is_seen(board: BoardFolder, told: str) -> None:
    ON_A_BOARD[told](board)
    found = [each for each in verified(board.path) if each.outcome == "broken"]
    assert any(told in note for each in found for note in each.notes), found
    assert exit_code(found) == 3


ON_A_SUBMISSION: dict[str, tuple[str, Callable[[SubmissionFolder], object]]] = {
    "its reconstruction does not have the hash": (
        "broken",
        lambda s: one(s.path, "reconstructions/*").write_bytes(b"better"),
    ),
    "its release does not have the hash": (
        "broken",
        lambda s: one(s.path, "releases/*").write_bytes(b"other"),
    ),
    "its reconstruction is not there": (
        "cannot",
        lambda s: one(s.path, "reconstructions/*").unlink(),
    ),
    "belongs to no record": (
        "broken",
        lambda s: (s.path / "reconstructions" / "x.safetensors").write_bytes(b""),
    ),
    "2 cells without a record, and it says 1": (
        "broken",
        lambda s: [
            one(s.path).unlink(),
            one(s.path).unlink(),
            say(s, "missing = 0", "missing = 1"),
        ],
    ),
    "1 cell missing": ("cannot", lambda s: say(s, "missing = 0", "missing = 1")),
    "it names the record": ("broken", lambda s: one(s.path).unlink()),
    "no such cell": ("broken", lambda s: say(s, "mixup[k=4]", "mixup[k=8]")),
    "is not what was handed in": ("broken", lambda s: say(s, 'version = "1"', 'version = "2"')),
    "it says 'passed' of its controls": ("broken", lambda s: say(s, "no attack", "passed")),
    "the board 'small' has changed": (
        "differs",
        lambda s: edit(s.path.parents[1] / "board.toml", '"none", ', ""),
    ),
    "describes no submission": ("broken", lambda s: say(s, "authors", "authours")),
    "has no track": ("broken", lambda s: say(s, '"once"', '"twice"')),
}


def say(folder: SubmissionFolder, old: str, new: str) -> None:
    edit(folder.path / "submission.toml", old, new)


@pytest.mark.parametrize("told", ON_A_SUBMISSION)
def test_tampering_with_a_submission_is_seen(
    board: BoardFolder, mine: SubmissionFolder, told: str
) -> None:
    outcome, tamper = ON_A_SUBMISSION[told]
    tamper(mine)
    found = [each for each in verified(board.path) if any(told in note for note in each.notes)]
    assert outcome in {each.outcome for each in found}


def test_a_submission_elsewhere_names_its_board(
    board: BoardFolder, mine: SubmissionFolder, tmp_path: Path
) -> None:
    moved = mine.path.rename(tmp_path / "moved")
    with Verifier(tmp_path, judge=False, board=str(board.path)) as verifier:
        assert exit_code(list(verifier.verify(str(moved)))) == 0

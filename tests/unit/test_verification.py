"""What is verified without running anything, and how tampering ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handed_in import CELLS, make_board, record_of, report, submit

from harness.api import UsageError
from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.control import VOLATILE
from harness.running.run import Run
from harness.store.provenance import sha256_of
from harness.store.record import fingerprint, rest_of
from harness.submissions.checks import Verdict, exit_code
from harness.submissions.folder import SubmissionFolder
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core

Values = dict[str, Any]


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
    assert found[-1].notes == (f"{CELLS} of {CELLS} cells have a record", "unsigned")
    assert exit_code(found) == 0


def test_so_do_its_parts(board: BoardFolder, mine: SubmissionFolder) -> None:
    record = next((board.path / "records").iterdir())
    handed_in = next((mine.path / "records").iterdir())
    for path in (record, handed_in, mine.path, board.path / "records"):
        assert exit_code(verified(path)) == 0


def test_missing_cells_of_a_board_are_no_fault(board: BoardFolder) -> None:
    next((board.path / "records").iterdir()).unlink()
    assert f"{CELLS - 1} of {CELLS} cells have a record" in verified(board.path)[-1].notes
    assert exit_code(verified(board.path)) == 0


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def one(folder: Path, pattern: str = "records/*.json") -> Path:
    return sorted(folder.glob(pattern))[0]


def reseal(path: Path, change: Callable[[Values], object]) -> None:
    """Edit a record and give it the id that it should then have."""
    values = json.loads(path.read_bytes())
    values = change(values) or values
    values |= {"id": fingerprint(values), "rest": rest_of(values)}
    path.unlink()
    path.with_name(f"{values['id']}.json").write_text(json.dumps(values))


def resign(path: Path, change: Callable[[Values], object]) -> None:
    """Edit a report on controls and give it the id that it should then have."""
    values = json.loads(path.read_bytes())
    change(values)
    values["id"] = sha256_of({k: v for k, v in values.items() if k not in VOLATILE})
    path.write_text(json.dumps(values))


def first(values: Values, **change: object) -> None:
    """Change the first control's result."""
    values["results"][0].update(change)


BARE = {"privacy": {}, "by_image": {}, "utility": None, "artifacts": {}, "channels_used": []}
CANNOT_BE = {"status": "not_applicable", "error": "it reads gradients", **BARE}
MEMBER = {"status": "ok"}
UNRANKED = {"flags": [{"name": "unranked", "message": "a first look"}]}


def linear(board: BoardFolder) -> Path:
    """A record of the attack `linear`."""
    return next(
        p for p in sorted(board.path.glob("records/*")) if '"attack":"linear"' in p.read_text()
    )


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
    "not that of its plugin": lambda b: one(b.path, "controls/*").rename(
        b.controls / "linear-0.json"
    ),
    "not those that 'linear' declares": lambda b: resign(
        one(b.path, "controls/*"), lambda v: v["results"][0]["control"].update(at_least=0.1)
    ),
    "says of the parts": lambda b: resign(
        one(b.path, "controls/*"), lambda v: v.update(passed=False)
    ),
    "did not end as it says": lambda b: resign(
        one(b.path, "controls/*"), lambda v: first(v, reached=3.0, ci=[2.0, 4.0])
    ),
    "control by 'snr_db' did not end as it says": lambda b: resign(
        one(b.path, "controls/*"), lambda v: first(v, leaks_more="lower")
    ),
    "nothing that was asked makes it so": lambda b: reseal(one(b.path), lambda v: v | UNRANKED),
    "do not bear out the flag below_null": lambda b: reseal(
        one(b.path), lambda v: v | {"flags": [{"name": "below_null", "message": "it says"}]}
    ),
    "whose gains nobody can recompute": lambda b: reseal(
        one(b.path), lambda v: v | {"schema": "encoding-harness/record/3", "by_image": {}}
    ),
    "names many attacks, and 'linear' is one": lambda b: reseal(
        linear(b),
        lambda v: v | {"members": {"x": MEMBER | {"attack": v["attack"]}}, "by_image": {}},
    ),
    "its attack is given": lambda b: reseal(
        one(b.path), lambda v: v | {"channels_used": ["candidates", "encodings"]}
    ),
    "such a cell releases encodings": lambda b: reseal(
        one(b.path), lambda v: v | {"release_kind": "features"}
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
    "as it ran here is not what is handed in": ("broken", lambda s: s.keep_control(report())),
    "says that its attack does not apply": (
        "cannot",
        lambda s: reseal(one(s.path), lambda v: v | CANNOT_BE),
    ),
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


def test_no_cell_is_answered_on_the_board_and_by_a_stranger(
    board: BoardFolder, mine: SubmissionFolder
) -> None:
    taken = record_of(cells_of(board.board)[0])
    mine.records.save(taken)
    assert "2 records are of one cell" not in verified(board.path)[-1].notes
    mine.records.save(taken.model_copy(update={"verdict": "another"}).sealed())
    assert "2 records are of one cell" in verified(board.path)[-1].notes


def test_what_cannot_be_is_told_by_running_it_again(
    board: BoardFolder, mine: SubmissionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reseal(one(mine.path), lambda v: v | CANNOT_BE)
    path = next(p for p in mine.path.glob("records/*") if "not_applicable" in p.read_text())
    monkeypatch.setattr(Run, "result", lambda _: mine.load(path))
    with Verifier(board.path, judge=False, rerun=True) as verifier:
        (found,) = verifier.verify(str(path))
    assert (found.outcome, found.notes) == ("ok", ("run again: the same to the bit",))


@pytest.mark.parametrize("name", ["board.toml", "submission.toml"])
def test_a_description_stands_for_what_it_describes(
    board: BoardFolder, mine: SubmissionFolder, name: str
) -> None:
    folder = board.path if name == "board.toml" else mine.path
    assert verified(folder / name) == verified(folder)


def test_reports_on_controls_are_known_where_they_lie(board: BoardFolder, tmp_path: Path) -> None:
    path = one(board.path, "controls/*")
    copied = tmp_path / path.name
    copied.write_bytes(path.read_bytes())
    for place in (path, board.controls, copied):
        assert [(v.what, v.outcome) for v in verified(place)] == [("control", "ok")]


def test_what_is_no_json_is_refused(board: BoardFolder) -> None:
    page = board.path / "README.md"
    page.write_text("# A board")
    with pytest.raises(UsageError, match="is no JSON: give a record"):
        verified(page)


def test_the_first_wrong_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": "x", "request": {}, "artifacts": {}}')
    (found,) = verified(path)
    assert found.notes[0].startswith("is not a record: status: Field required (and ")

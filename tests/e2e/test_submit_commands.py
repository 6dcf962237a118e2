"""`harness submit` and `harness verify` as typed: what they refuse, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import complaint, harness, succeed
from smallboard import make_board

WHO = ("--paper", "none", "--authors", "A. Stranger", "--license", "CC0-1.0")


@pytest.fixture
def board(tmp_path: Path) -> str:
    return str(make_board(tmp_path / "board"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("noize",), "Did you mean 'noise'"),
        (("noise[colour=1]",), "no option 'colour'"),
        (("noise", "--track", "encoding"), "Did you mean 'encodings'"),
        (("gradmatch",), "No track of board 'small' is for 'gradmatch'"),
        (("noise", "--kind", "attack"), "There is no attack 'noise'"),
        (("noise", "--authors", "A", "--license", "MIT"), "missing: --paper"),
        (("noise", *WHO, "--authors", "two\nlines"), "authors"),
        (("noise", *WHO, "--name", "../up"), "is named in small letters"),
    ],
)
def test_what_cannot_be_submitted(
    board: str, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = harness("submit", *arguments, "--board", board, cache=tmp_path)
    assert told in complaint(done, 2)
    assert not (Path(board) / "submissions").exists()


def test_a_board_that_is_not_there(tmp_path: Path) -> None:
    done = harness("submit", "noise", "--board", "nowhere", cache=tmp_path)
    assert "There is no board 'nowhere'" in complaint(done, 2)


def test_a_folder_with_something_else_is_left_alone(board: str, tmp_path: Path) -> None:
    thesis = tmp_path / "mine" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("a year's work")
    out = ("--out", str(thesis.parent))
    done = harness("submit", "noise", "--board", board, *WHO, *out, cache=tmp_path)
    assert "is no submission" in complaint(done, 2)
    assert thesis.read_text() == "a year's work"


def test_a_plan_needs_no_name_and_writes_nothing(board: str, tmp_path: Path) -> None:
    arguments = ("submit", "noise[scale=1|2]", "--board", board, "--dry-run", "--json")
    plan = json.loads(succeed(*arguments, cache=tmp_path))
    assert [cell["state"] for cell in plan] == ["missing"] * 4
    assert not (Path(board) / "submissions").exists()


def test_an_empty_board_holds(board: str, tmp_path: Path) -> None:
    assert "0 of 4 cells have a record" in succeed("verify", board, cache=tmp_path)


@pytest.mark.parametrize(
    ("path", "code", "told"),
    [
        ("nowhere", 2, "There is no board"),
        ("empty", 2, "holds no records"),
        ("board/records/x.json", 2, "There is no board"),
    ],
)
def test_what_cannot_be_verified(
    board: str, tmp_path: Path, path: str, code: int, told: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = harness("verify", str(tmp_path / path), cache=tmp_path / "cache")
    assert told in complaint(done, code)


def test_a_file_that_is_no_record_is_broken(board: str, tmp_path: Path) -> None:
    (Path(board) / "records").mkdir()
    (Path(board) / "records" / "x.json").write_text("[")
    done = harness("verify", board, "--json", cache=tmp_path)
    assert done.returncode == 3
    assert done.stderr == ""
    assert json.loads(done.stdout)["outcome"] == "broken"

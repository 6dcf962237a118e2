"""From a submission to what is committed: the path that CONTRIBUTING describes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from handed_in import CELLS, make_board, submit

from harness.api import IntegrityError
from harness.boards.folder import BoardFolder
from harness.cli import cli
from harness.submissions.folder import SubmissionFolder

pytestmark = pytest.mark.core


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardFolder:
    """A board below leaderboards/, as it is committed."""
    monkeypatch.chdir(tmp_path)
    folder = make_board(Path("leaderboards") / "small")
    invoke("leaderboard", "build")
    return folder


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def what_ci_runs() -> tuple[int, int]:
    """The exit codes of tox's environment `boards`."""
    done = (("verify", "--no-judge", "leaderboards"), ("leaderboard", "check"))
    verified, checked = (invoke(*command).return_value for command in done)
    return verified, checked


@pytest.mark.parametrize("named", [(), ("small",)])
def test_what_is_handed_in_and_built_passes(board: BoardFolder, named: tuple[str, ...]) -> None:
    assert what_ci_runs() == (0, 0)
    submit(board)
    assert what_ci_runs() == (0, 3)  # its rows are not in the tables yet
    built = invoke("leaderboard", "build", *named)
    assert "wrote leaderboards/README.md" in built.stdout
    assert f"small: {CELLS + 3} records, 3 rows" in built.stdout
    assert what_ci_runs() == (0, 0)


def test_verify_says_how_far_it_went(board: BoardFolder) -> None:
    told = invoke("verify", "--no-judge", "small").stdout.splitlines()
    assert told[-1] == f"{CELLS} consistent, 2 ok"  # the board, and a report on controls
    assert sum(line.startswith("consistent   record ") for line in told) == CELLS
    found = json.loads(invoke("verify", "--no-judge", "small", "--json").stdout)["verdicts"]
    assert [each["depth"] for each in found if each["what"] == "record"] == ["consistent"] * CELLS


def test_a_board_whose_records_disagree_is_not_built(board: BoardFolder) -> None:
    one = next(record for record in board.kept() if record.request.attack == "identity")
    assert one.utility
    other = one.utility.model_copy(update={"chance": 0.2})
    board.keep(one.model_copy(update={"utility": other}).sealed(), instead=one.id)
    with pytest.raises(IntegrityError, match="disagree: accuracy by chance is 0") as error:
        CliRunner().invoke(
            cli, ["leaderboard", "build"], standalone_mode=False, catch_exceptions=False
        )
    assert error.value.exit_code == 3
    assert what_ci_runs() == (3, 3)


def test_a_board_elsewhere_moves_no_index(board: BoardFolder) -> None:
    shutil.copytree(board.path, "elsewhere")
    Path("elsewhere/README.md").unlink()
    assert invoke("leaderboard", "build", "elsewhere").stdout.startswith("wrote elsewhere/README")
    assert what_ci_runs() == (0, 0)


def test_a_check_refuses_what_verifying_does(board: BoardFolder) -> None:
    mine: SubmissionFolder = submit(board)
    shutil.rmtree(mine.path / "records")
    invoke("leaderboard", "build")
    assert what_ci_runs() == (3, 3)
    told = invoke("leaderboard", "check").stdout
    assert "small: submission mine: 3 cells without a record, and it says 0" in told

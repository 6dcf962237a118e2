"""Every committed board is whole: its records, its controls and what strangers submitted to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.boards.protocol import FILE
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core
BOARDS = sorted(path.parent for path in Path(__file__).parents[2].glob(f"leaderboards/*/{FILE}"))


def test_there_are_boards() -> None:
    assert {"cifar10-v2", "features-v2", "paper-v1"} <= {b.name for b in BOARDS}


@pytest.mark.parametrize("folder", BOARDS, ids=lambda folder: folder.name)
def test_a_committed_board_is_whole(folder: Path, tmp_path: Path) -> None:
    with Verifier(tmp_path, judge=False) as verifier:
        found = [each for each in verifier.verify(str(folder)) if each.outcome != "ok"]
    assert found == []


@pytest.mark.parametrize("folder", BOARDS, ids=lambda folder: folder.name)
def test_a_board_is_named_as_its_folder(folder: Path) -> None:
    board = BoardFolder(folder).board
    assert board.name == folder.name
    assert cells_of(board)


@pytest.mark.parametrize("folder", BOARDS, ids=lambda folder: folder.name)
def test_a_board_that_is_only_defined_has_no_numbers(folder: Path) -> None:
    board = BoardFolder(folder)
    assert board.board.status == "measured" or not board.kept()

"""Folders that cannot be read are no empty ones.

Root may read everything, so a file stands where the folder should be: the system refuses it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.api.errors import StoreError
from harness.boards.folder import BoardFolder, every_board, find_board
from harness.store.paths import listed
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core

BOARD = """
name = "small"
title = "A small board"
options = { dataset = "fashion-mini", threads = 1 }

[[tracks]]
name = "encodings"
title = "Encodings"
defenses = ["mixup"]
cells = [{ attacks = ["identity"] }]
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardFolder:
    """A board whose records and submissions cannot be listed."""
    folder = tmp_path / "leaderboards" / "small"
    folder.mkdir(parents=True)
    (folder / "board.toml").write_text(BOARD, encoding="utf-8")
    for name in ("records", "submissions", "controls"):
        (folder / name).touch()
    monkeypatch.chdir(tmp_path)
    return find_board("small")


def verified(board: BoardFolder) -> list[Any]:
    with Verifier(board.path, judge=False) as verifier:
        return list(verifier.verify(str(board.path)))


@pytest.mark.parametrize(
    "look",
    [
        lambda board: board.kept(),
        lambda board: board.answers(),
        lambda board: board.submissions,
        lambda board: listed(board.controls, ".json"),
        verified,
    ],
)
def test_what_cannot_be_listed_is_an_error(
    board: BoardFolder, look: Callable[[BoardFolder], Any]
) -> None:
    with pytest.raises(StoreError, match="Not a directory") as told:
        look(board)
    assert "HARNESS_CACHE" not in str(told.value)


def test_boards_that_cannot_be_looked_for_are_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leaderboards").touch()
    for look in (every_board, lambda: find_board("small")):
        with pytest.raises(StoreError, match="leaderboards: Not a directory"):
            look()


def test_a_board_of_an_impossible_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="File name too long"):
        find_board(300 * "a")

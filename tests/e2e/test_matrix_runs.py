"""A board filled by two workers, whatever befalls them: the records of a quiet day, each once."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commandline import (
    assert_all_end,
    complaints,
    environment,
    family,
    heed_signals,
    scratch,
    succeed,
)
from smallboard import (
    CELLS,
    ids,
    make_board,
    matrix,
    stored,
    wait_for,
    workers,
)

from harness import evaluate
from harness.boards.cells import cells_of
from harness.boards.protocol import read_board

DEFENSES, ATTACKS = ("none", "mixup"), ("identity", "nearest")
"""Those of the small board."""
KILLS = int(os.environ.get("KILLS", "3"))
"""So often a run is killed: `KILLS=10 pytest -k again` takes some minutes."""


@dataclass(frozen=True)
class Watched:
    """A run of two workers that nobody disturbed, and what a terminal showed of it."""

    board: Path
    cache: Path
    screen: str
    code: int

    @property
    def stored(self) -> int:
        """How many outcomes of stages it made."""
        return stored(self.cache)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    work = tmp_path_factory.mktemp("quiet")
    board = make_board(work / "board")
    own, terminal = pty.openpty()
    surroundings = environment(work / "cache", TERM="xterm", COLUMNS="100")
    with matrix(board, cache=work / "cache", stderr=terminal, env=surroundings) as process:
        os.close(terminal)
        screen = b"".join(_read(own)).decode()
    os.close(own)
    return Watched(board, work / "cache", screen, process.returncode)


def _read(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # a terminal whose last user is gone
        while chunk := os.read(terminal, 1 << 12):
            yield chunk


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return make_board(tmp_path / "board")


def test_two_workers_make_what_single_evaluations_make(quiet: Watched, tmp_path: Path) -> None:
    assert quiet.code == 0, quiet.screen
    cells = cells_of(read_board(quiet.board))
    alone = [evaluate(cache=tmp_path, **cell.options).id for cell in cells]
    assert ids(quiet.board) == sorted(alone)


def test_a_terminal_shows_how_far_it_is(quiet: Watched) -> None:
    assert "0 of 4 cells" in quiet.screen
    cells = [f"{defense} × {attack}" for defense in DEFENSES for attack in ATTACKS]
    running = [*(f"release {defense}" for defense in DEFENSES), *cells]
    # Each is shown with what it is at, if it takes a while; which do depends on the machine.
    assert any(f"{title} " in quiet.screen for title in running)
    assert "ok             mixup × nearest, seed 0" in quiet.screen


def test_a_full_board_is_not_run_again(quiet: Watched) -> None:
    before = ids(quiet.board)
    out = succeed("matrix", "--board", str(quiet.board), "--json", cache=quiet.cache)
    assert sorted(values["id"] for values in json.loads(out)) == before


def test_a_record_that_did_not_reach_the_board_does_so_next_time(
    quiet: Watched, board: Path
) -> None:
    """A run may be killed between the two."""
    succeed("matrix", "--board", str(board), "--limit", "1", cache=quiet.cache)
    assert set(ids(board)) < set(ids(quiet.board))
    assert len(ids(board)) == 1


def test_killed_again_and_again_it_ends_with_the_same_records(
    quiet: Watched, board: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for after in sorted(random.Random(7).sample(range(1, quiet.stored), KILLS)):
        with matrix(board, cache=cache) as process:
            wait_for(process, cache, after)
            others = family(process)
            process.kill()
        assert_all_end(others)
    succeed("matrix", "--board", str(board), "--workers", "2", cache=cache)
    assert ids(board) == ids(quiet.board)
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=cache)


def test_a_station_that_is_killed_is_replaced(quiet: Watched, board: Path, tmp_path: Path) -> None:
    cache, moments = tmp_path / "cache", random.Random(7)
    with matrix(board, cache=cache) as process:
        for after in sorted(moments.sample(range(quiet.stored - 1), 2)):
            wait_for(process, cache, after)
            moments.choice(workers(process)).kill()
        _, err = process.communicate(timeout=120)
    assert (process.returncode, complaints(err)) == (0, [])
    assert [line.partition(" (")[2] for line in err.splitlines() if " cells)" in line] == [
        f"{done} of {CELLS} cells)" for done in range(1, CELLS + 1)
    ]
    assert ids(board) == ids(quiet.board)


def test_an_interrupted_run_leaves_nothing_behind(board: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with matrix(board, cache=cache, preexec_fn=heed_signals) as process:
        wait_for(process, cache, 1)
        others = family(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    (said,) = filter(None, complaints(err))
    assert said == "Interrupted. The same command goes on where this one stopped."
    assert_all_end(others)
    assert [left for each in (process, *others) for left in scratch(cache, each.pid)] == []
    assert list((cache / "tmp").iterdir()) == []

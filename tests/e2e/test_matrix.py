"""`harness matrix` before anything runs: what there is to do, and what cannot be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commandline import complaint, harness, succeed

pytestmark = pytest.mark.core

BOARD = """
name = "small"
title = "A small board"
options = { dataset = "fashion-mini", threads = 1, only = "privacy" }

[[tracks]]
name = "encodings"
title = "Encodings"
defenses = ["mixup[k=2|4]"]
cells = [{ attacks = ["identity", "gradmatch"], seeds = [0, 1] }]
options = { release = "encodings" }
"""


@pytest.fixture
def board(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "board.toml").write_text(BOARD, encoding="utf-8")
    return folder


def plan(*arguments: str, cache: Path) -> list[dict[str, Any]]:
    """What a dry run foresees."""
    cells: list[dict[str, Any]] = json.loads(
        succeed("matrix", *arguments, "--dry-run", "--json", cache=cache)
    )
    return cells


def asked(cells: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(cell["request"].get(name) for name in names) for cell in cells]


def test_grids_are_multiplied(tmp_path: Path) -> None:
    grid = ("--defense", "singmix[tau=1e0|1e-2]", "--defense", "mixup", "--attack", "lmmse")
    cells = plan(*grid, "--seed", "0", "--seed", "1", cache=tmp_path)
    assert asked(cells, "defense", "attack", "seed") == [
        (defense, "lmmse", seed)
        for defense in ("singmix[tau=1e0]", "singmix[tau=1e-2]", "mixup")
        for seed in (None, 1)
    ]
    assert {cell["state"] for cell in cells} == {"missing"}


def test_cores_are_divided_among_workers_unless_threads_are_given(tmp_path: Path) -> None:
    grid = ("--defense", "mixup", "--attack", "lmmse")
    assert asked(plan(*grid, "--workers", "256", cache=tmp_path), "threads") == [(1,)]
    assert asked(plan(*grid, "--engine", "ray", cache=tmp_path), "threads") == [(1,)]
    assert asked(plan(*grid, "--threads", "3", cache=tmp_path), "threads") == [(3,)]


def test_a_board_says_what_is_missing_and_why_a_cell_cannot_be(board: Path, tmp_path: Path) -> None:
    cells = plan("--board", str(board), cache=tmp_path)
    assert asked(cells, "defense", "attack") == [
        (f"mixup[k={k}]", attack)
        for k in (2, 4)
        for _ in range(2)
        for attack in ("identity", "gradmatch")
    ]
    states = {cell["request"]["attack"]: (cell["state"], cell["reason"]) for cell in cells}
    assert states["identity"] == ("missing", "")
    assert states["gradmatch"][0] == "impossible"
    assert "'gradmatch' reads gradients" in states["gradmatch"][1]


def test_a_dry_run_counts_and_runs_nothing(board: Path, tmp_path: Path) -> None:
    out = succeed("matrix", "--board", str(board), "--dry-run", cache=tmp_path / "cache")
    assert "4 not run yet, 4 impossible" in out
    assert not (tmp_path / "cache" / "artifacts").exists()
    assert [path.name for path in board.iterdir()] == ["board.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Name a board with --board, or at least one --defense and one --attack."),
        (("--defense", "mixup"), "at least one --defense and one --attack"),
        (("--board", "nowhere"), "There is no board 'nowhere' below leaderboards/"),
        (("--board", 300 * "a"), "File name too long"),
        (("--board", "BOARD", "--seed", "1"), "--seed cannot go with --board"),
        (("--board", "BOARD", "--threads", "1"), "--threads cannot go with --board"),
        (("--board", "BOARD", "--config", "x.toml"), "--config cannot go with --board"),
        (("--board", "BOARD", "--track", "encoding"), "Did you mean 'encodings'?"),
        (("--track", "encodings"), "--track is for --board"),
        (("--defense", "mixupp", "--attack", "lmmse"), "Did you mean 'mixup'?"),
        (("--defense", "mixup[k=2|]", "--attack", "lmmse"), "k"),
        (("--defense", "mixup", "--attack", "lmmse", "--workers", "0"), "--workers"),
        (("--defense", "mixup", "--attack", "lmmse", "--address", "auto"), "--engine ray"),
        (("--board", "BOARD", "--engine", "ray", "--workers", "2"), "--engine local"),
        (("--board", "BOARD", "--engine", "slurm"), "slurm"),
    ],
)
def test_what_cannot_be_asked(
    board: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    written = [str(board) if each == "BOARD" else each for each in arguments]
    done = harness("matrix", *written, "--dry-run", cache=tmp_path)
    assert message in complaint(done, 2)


def test_a_stray_record_is_named_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "abc.json").write_text("{}", encoding="utf-8")
    done = harness("matrix", *GRID, "--dry-run", cache=tmp_path)
    assert (done.returncode, "4 not run yet" in done.stdout) == (0, True)
    assert "abc.json is not a record" in done.stderr


GRID = ("--defense", "mixup[k=2|4]", "--attack", "identity", "--attack", "nearest")


def test_a_dry_run_shows_what_this_command_would_run(tmp_path: Path) -> None:
    cells = plan(*GRID, "--limit", "3", cache=tmp_path)
    assert [cell["runs"] for cell in cells] == [True, True, True, False]
    lines = succeed("matrix", *GRID, "--limit", "1", "--dry-run", cache=tmp_path).splitlines()
    assert ["later" in line for line in lines[:4]] == [False, True, True, True]
    assert "1 cell to run: 6 steps, among them 4 steps whose like was never run" in lines[-1]


def test_without_its_data_a_cell_is_shown_and_not_run(tmp_path: Path) -> None:
    """A fresh cache has no CIFAR-10."""
    grid = (*GRID, "--dataset", "cifar10", "--dataset", "fashion-mini")
    cells = plan(*grid, cache=tmp_path)
    assert [cell["state"] for cell in cells] == ["unavailable"] * 4 + ["missing"] * 4
    assert "harness assets fetch cifar10" in cells[0]["reason"]
    done = harness("matrix", *grid, cache=tmp_path)
    assert "harness assets fetch cifar10" in complaint(done, 2)
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("defense = 3", "defense is a text, or a list of texts, not 3"),
        ("defense = { a = 1 }", "defense is a text, or a list of texts, not {'a': 1}"),
        ('attack = [["lmmse"]]', "attack is a text, or a list of texts, not ['lmmse']"),
        ("dataset = 2001-01-01", "dataset is a text"),
        ('seed = ["a"]', "seed is a whole number, or a list of whole numbers, not 'a'"),
        ("seed = true", "seed is a whole number"),
        ("threads = { a = 1 }", "threads: "),
    ],
)
def test_a_file_of_options_has_values_of_their_kinds(
    tmp_path: Path, line: str, message: str
) -> None:
    config = tmp_path / "grid.toml"
    config.write_text(line + "\n", encoding="utf-8")
    given = ("--config", str(config), "--dry-run")
    asked = [o for name in ("defense", "attack") if name not in line for o in (f"--{name}", "none")]
    assert message in complaint(harness("matrix", *asked, *given, cache=tmp_path), 2)

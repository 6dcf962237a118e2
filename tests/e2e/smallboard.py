"""A board of four cells in seconds, and what is left of a run of it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
from commandline import family, start

TOML = """
name = "small"
title = "A small board"

[options]
dataset = "fashion-mini"
private_size = 40
public_size = 120
test_size = 60
metrics = "snr_db"
only = "privacy"
threads = 1

[[tracks]]
name = "encodings"
title = "Encodings"
defenses = ["none", "mixup"]
cells = [{ attacks = ["identity", "nearest"] }]
"""
CELLS = 4


def make_board(folder: Path) -> Path:
    """The board's folder, without records."""
    folder.mkdir(parents=True)
    (folder / "board.toml").write_text(TOML, encoding="utf-8")
    return folder


def matrix(board: Path, *, cache: Path, **options: Any) -> subprocess.Popen[str]:
    """Start filling the board with two workers."""
    return start("matrix", "--board", str(board), "--workers", "2", cache=cache, **options)


def ids(board: Path) -> list[str]:
    """The ids of a board's records, each checked to answer another cell."""
    values = [json.loads(path.read_bytes()) for path in (board / "records").glob("*.json")]
    cells = {(v["request"]["defense"], v["request"]["attack"]) for v in values}
    assert len(cells) == len(values)
    assert {v["status"] for v in values} <= {"ok"}
    return sorted(v["id"] for v in values)


def stored(cache: Path) -> int:
    """How many outcomes of stages there are."""
    return len(list(cache.glob("artifacts/*/*/facts.json")))


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that do a run's steps."""
    return [each for each in family(process) if "harness.scheduling.local" in command_of(each)]


def command_of(process: psutil.Process) -> list[str]:
    """What it was started with; nothing of one that has ended meanwhile."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def wait_for(process: subprocess.Popen[str], cache: Path, outcomes: int) -> None:
    """Wait until a run is at work and this much is stored."""
    while stored(cache) < outcomes or not workers(process):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)

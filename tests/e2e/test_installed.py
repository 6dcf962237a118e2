"""What the package holds besides code, and what works wherever it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import environment, python

ROOT = Path(__file__).parents[2]
BOARDS = {path.parent.name for path in ROOT.glob("leaderboards/*/board.toml")}
BUILD = """
import sys
from setuptools import setup
sys.argv = ["setup.py", "-q", "egg_info", "--egg-base", sys.argv[1], "build_py",
            "--build-lib", sys.argv[1]]
setup()
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel holds, built from these sources."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return folder


def test_boards_ship_with_the_package(package: Path) -> None:
    """Their protocols, records and controls; no pages, and no pictures."""
    shipped = package / "harness" / "leaderboards"
    for board in sorted((ROOT / "leaderboards").glob("*/board.toml")):
        parts = ("board.toml", "records/*.json", "controls/*.json")
        wanted = {p.relative_to(board.parent) for part in parts for p in board.parent.glob(part)}
        there = shipped / board.parent.name
        assert {p.relative_to(there) for p in there.rglob("*") if p.is_file()} == wanted
        assert not there.is_symlink()


def test_advice_is_given_outside_a_checkout(package: Path, tmp_path: Path) -> None:
    asked = ("-m", "harness", "advise", "--dataset", "cifar10", "--json", "--min-accuracy")
    surroundings = environment(tmp_path / "cache", PYTHONPATH=str(package))
    with python(*asked, "0.3", cache=tmp_path, cwd=tmp_path, env=surroundings) as process:
        out, err = process.communicate(timeout=120)
    assert err == ""
    given = json.loads(out)
    boards = {offer["board"] for offer in given["doubtful"] + given["recommended"]}
    assert boards
    assert boards <= BOARDS
    assert process.returncode == (0 if given["recommended"] else 1)

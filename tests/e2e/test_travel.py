"""How far a cell travels through the house: whoever follows one has to read as many files."""

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "travel.py"


def test_the_default_cell_passes_few_files_and_is_not_deep():
    said = subprocess.run(
        [sys.executable, str(BENCHMARK)], capture_output=True, text=True, check=True
    ).stdout
    files, deepest = (int(re.search(rf"{what} (\d+)", said)[1]) for what in ("files", "frame"))
    assert files <= 46
    assert deepest <= 22
    stated = (BENCHMARK.parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    stated = " ".join(stated.split())
    assert f"{files} files of `harness/`, and {deepest} calls at its deepest" in stated

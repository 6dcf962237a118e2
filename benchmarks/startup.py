"""How fast the command line answers, and what the engine costs on top of its stages.

    python benchmarks/startup.py [--quick-cell]

Prints ratios measured in one run: `harness --help` and `harness list` against a bare interpreter
that imports click, and, with --quick-cell, the share of the default evaluation's wall time that is
not spent in a stage.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

ROUNDS = 11
BARE = (sys.executable, "-c", "import click")
HARNESS = (sys.executable, "-m", "harness")


def seconds(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def medians(commands: dict[str, Sequence[str]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median time of each command, the commands taking turns so that a slow minute hits all."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(seconds(command))
    return {name: statistics.median(values) for name, values in times.items()}


def startup() -> None:
    found = medians(
        {
            "bare": BARE,
            "--help": (*HARNESS, "--help"),
            "evaluate --help": (*HARNESS, "evaluate", "--help"),
            "list": (*HARNESS, "list"),
        }
    )
    limits = {"--help": 3, "evaluate --help": 3, "list": 5}
    for name, limit in limits.items():
        ratio = found[name] / found["bare"]
        print(f"harness {name:<16} {ratio:5.2f} × a bare interpreter with click (at most {limit})")


def quick_cell() -> None:
    """The default evaluation in an empty cache, then again."""
    torch = medians({"torch": (sys.executable, "-c", "import torch")}, rounds=3)["torch"]
    with tempfile.TemporaryDirectory() as cache:
        command = (*HARNESS, "evaluate", "--json")
        environment = {**os.environ, "HARNESS_CACHE": cache}
        walls, records = [], []
        for _ in range(2):
            started = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, env=environment)
            walls.append(time.perf_counter() - started)
            records.append(json.loads(done.stdout))
    outside = walls[0] - sum(records[0]["timing"].values())
    print(f"default cell: {walls[0]:.1f} s, {outside / walls[0]:.1%} of it outside its stages;")
    print(f"  {(outside - torch) / walls[0]:.1%} without the bare `import torch` (at most 5%)")
    peaks = records[0]["peak_memory"]
    owner = peaks.pop("owner")
    print(f"peak memory: owner {owner:.0f} MB and attack {max(peaks.values()):.0f} MB")
    same = records[0]["id"] == records[1]["id"]
    print(f"again: {walls[1] / walls[0]:.3f} × the first time, same record: {same}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick-cell", action="store_true", help="also run the default cell")
    arguments = parser.parse_args()
    startup()
    if arguments.quick_cell:
        quick_cell()

"""What a second worker is worth: a board of 3 × 4 quick cells by one worker, then by two.

    python benchmarks/matrix.py [--rounds 3]

Each run starts with an empty cache, so that everything is done: releases, trainings, attacks,
records. Prints the ratio of wall times (at least 1.6 on two quiet cores), and beside it the
processor time of both: where something else is running on the machine, the wall times are not to
be believed, and the loads before each run say so. Records must be the same, one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

DEFENSES = ("mixup[k=2]", "singmix[tau=1e-2]", "instahide[k=2]")
ATTACKS = ("lmmse", "linear", "wiener", "classmeans")
WANTED = 1.6


@dataclass(frozen=True)
class Run:
    """One filling of the board: seconds on the wall and of processors, the ids of its records."""

    wall: float
    busy: float
    load: float
    ids: tuple[str, ...]


def command(workers: int) -> list[str]:
    grid = [f"--defense={name}" for name in DEFENSES] + [f"--attack={name}" for name in ATTACKS]
    options = ["--threads=1", f"--workers={workers}", "--json"]
    return [sys.executable, "-m", "harness", "matrix", *grid, *options]


def fill(workers: int) -> Run:
    """Fill the board once, from nothing."""
    load, before, started = os.getloadavg()[0], busy_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "HARNESS_CACHE": cache}
        done = subprocess.run(command(workers), check=True, capture_output=True, env=environment)
    wall, busy = time.perf_counter() - started, busy_seconds() - before
    ids = tuple(record["id"] for record in json.loads(done.stdout))
    return Run(wall, busy, load, ids)


def busy_seconds() -> float:
    """Processor time of all that this process has started and that has ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main(rounds: int) -> None:
    ratios = []
    for _ in range(rounds):
        one, two = fill(1), fill(2)
        if one.ids != two.ids:
            raise SystemExit("two workers made other records than one")
        for workers, run in ((1, one), (2, two)):
            spent = f"{run.wall:6.1f} s, of processors {run.busy:6.1f} s"
            print(f"--workers {workers}  {spent}, load before {run.load:.1f}")
        ratios.append(one.wall / two.wall)
        print(f"{ratios[-1]:.2f} × as fast")
    print(f"{len(one.ids)} cells; two workers are {statistics.median(ratios):.2f} × as fast as one")
    print(f"(median of {rounds}; at least {WANTED} on two quiet cores)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="How often to compare.")
    main(parser.parse_args().rounds)

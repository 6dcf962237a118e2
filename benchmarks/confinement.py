"""What confinement costs: a plugin's process within its walls beside one without, in one run.

    python benchmarks/confinement.py [--quick-cell]

Prints how much longer it takes from a process's start to the end of its first job, which does
nothing, and with --quick-cell how much longer the default evaluation takes in an empty cache. Both
kinds take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import harness
from harness.api import Budget
from harness.api.plugins import silent
from harness.sandbox.jail import UNCONFINED, Walls
from harness.sandbox.process import FORK_SERVERS, AttackProcess

PROCESSES, CELLS = 31, 5
NOTHING = {"action": "call", "function": "builtins:len"}


def first_job(confined: bool) -> float:
    """Seconds from the start of a process to the end of its first job."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        started = time.perf_counter()
        with AttackProcess(base / "log", 1, FORK_SERVERS.start) as process:
            if confined:
                process.confine([base], [base])
            process.ask(NOTHING, Budget(60.0, 4000, 1), silent)
            return time.perf_counter() - started


def quick_cell(confined: bool) -> float:
    """Seconds of the default evaluation."""
    os.environ.pop(UNCONFINED, None)
    if not confined:
        os.environ[UNCONFINED] = "1"
    with tempfile.TemporaryDirectory() as cache:
        started = time.perf_counter()
        harness.evaluate(cache=Path(cache))
        return time.perf_counter() - started


def compare(what: str, measure: Callable[[bool], float], rounds: int) -> None:
    """Print the medians' difference and ratio."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for each in range(2 * rounds):
        times[each % 2 == 0].append(measure(each % 2 == 0))
    within, without = (statistics.median(times[confined]) for confined in (True, False))
    print(
        f"{what}: {within / without:.3f} × as long within walls, {1e3 * (within - without):.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick-cell", action="store_true")
    options = parser.parse_args()
    if not Walls.here().stand:
        sys.exit("nothing confines on this machine: see `harness doctor`")
    with FORK_SERVERS.kept():
        first_job(confined=True)
        compare("first job of a process", first_job, PROCESSES)
        if options.quick_cell:
            compare("default evaluation", quick_cell, CELLS)


if __name__ == "__main__":
    main()

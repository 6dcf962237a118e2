"""Whatever ends a run, the same command goes on, and the record is that of a quiet day."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from commandline import (
    PRIVACY,
    Command,
    assert_all_end,
    complaints,
    family,
    fork,
    record,
    scores,
    scratch,
    succeed,
)

CACHES, KILLS = 2, 5
"""Ten kills: in each of two caches five, one after another."""
CHEAP = (*PRIVACY, "--attack", "linear[steps=1]", "--metrics", "snr_db")
"""The cheapest evaluation whose attack learns something before the release."""
STAGE_SECONDS = 0.1
"""About as long as a stage takes: a kill comes so much later than an outcome at most."""


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody disturbed: its record, and how many outcomes of stages it stored."""

    record: dict[str, Any]
    stored: int


def artifacts(cache: Path) -> int:
    """How many outcomes of stages are stored."""
    return len(list(cache.glob("artifacts/*/*")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    cache = tmp_path_factory.mktemp("quiet")
    return Undisturbed(record(*CHEAP, cache=cache), artifacts(cache))


def killed_after(outcomes: int, later: float, cache: Path) -> bool:
    """Kill an evaluation so many seconds after so much is stored; whether it was at work then."""
    with fork(*CHEAP, cache=cache) as process:
        while artifacts(cache) < outcomes:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(later)
            assert process.returncode == 0, process.communicate()
            return False
        started = family(process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert_all_end(started)
    return True


@pytest.mark.parametrize("seed", range(CACHES))
def test_killed_five_times_it_ends_with_the_same_record(
    tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    """Over all caches one kill falls into each tenth of what a run stores."""
    moments = random.Random(seed)
    for i in range(KILLS):
        outcomes = undisturbed.stored * (i * CACHES + seed) // (CACHES * KILLS)
        later = moments.uniform(0, STAGE_SECONDS)
        while not killed_after(outcomes, later, tmp_path):
            shutil.rmtree(tmp_path / "cells")  # there is work again, if little
            later /= 2
    resumed = record(*CHEAP, cache=tmp_path)
    assert resumed["id"] == undisturbed.record["id"]
    assert scores(resumed) == scores(undisturbed.record)
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=tmp_path)


def test_of_two_on_one_cell_the_other_ends_with_the_same_record(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """One is killed while it holds what the other waits for."""
    with fork(*CHEAP, cache=tmp_path) as killed, fork(*CHEAP, "--json", cache=tmp_path) as other:
        while artifacts(tmp_path) < undisturbed.stored // 2:
            assert killed.poll() is None, killed.communicate()
            time.sleep(0.005)
        started = family(killed)
        killed.kill()
        out, err = other.communicate(timeout=120)
    assert (other.returncode, complaints(err)) == (0, [])
    assert json.loads(out)["id"] == undisturbed.record["id"]
    assert_all_end(started)
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=tmp_path)


def wait_for_worker(process: Command) -> list[psutil.Process]:
    """Wait until the attack's process has been started."""
    while process.poll() is None:
        if found := family(process):
            return found
        time.sleep(0.02)
    raise AssertionError(process.communicate())


def test_an_orphaned_attack_ends_by_itself(tmp_path: Path) -> None:
    with fork(*CHEAP, cache=tmp_path) as process:
        orphans = wait_for_worker(process)
        process.kill()
    assert_all_end(orphans)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later", [0.0, 0.3])
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, later: float
) -> None:
    with fork(*CHEAP, cache=tmp_path) as process:
        workers = wait_for_worker(process)
        time.sleep(later)
        workers += family(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    (said,) = filter(None, complaints(err))
    assert said == "Interrupted. The same command goes on where this one stopped."
    assert scratch(tmp_path, process.pid) == []
    assert_all_end(workers)

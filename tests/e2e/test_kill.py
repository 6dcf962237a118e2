"""Whatever ends a run, the same command goes on, and the record is that of a quiet day."""

from __future__ import annotations

import contextlib
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
    assert_all_end,
    family,
    heed_signals,
    record,
    scores,
    scratch,
    start,
    succeed,
)

CACHES, KILLS = 4, 5
"""Twenty kills: in each of four caches five, one after another."""
CHEAP = (*PRIVACY, "--attack", "linear[steps=1]", "--metrics", "snr_db")
"""The cheapest evaluation whose attack learns something before the release."""
LATEST_FIRST = ("judge", "attack", "prepare", "release", "load")


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody disturbed, and how long it and its repetition without a record took."""

    record: dict[str, Any]
    stored: int
    seconds: float
    at_least: float

    def remaining(self, cache: Path) -> float:
        """About how many seconds a run takes that finds what this cache holds."""
        missing = max(0.0, 1 - artifacts(cache) / self.stored)
        return self.at_least + missing * (self.seconds - self.at_least)


def artifacts(cache: Path) -> int:
    """How many outcomes of stages are stored."""
    return len(list(cache.glob("artifacts/*/*")))


def timed(cache: Path) -> tuple[dict[str, Any], float]:
    started = time.monotonic()
    values = record(*CHEAP, cache=cache)
    return values, time.monotonic() - started


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    cache = tmp_path_factory.mktemp("quiet")
    values, seconds = timed(cache)
    shutil.rmtree(cache / "cells")
    _, at_least = timed(cache)
    return Undisturbed(values, artifacts(cache), seconds, min(seconds, at_least))


def killed_after(seconds: float, cache: Path) -> bool:
    """Start the evaluation and kill it; whether it was still running then."""
    with start(*CHEAP, cache=cache) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            assert process.returncode == 0
            return False
        started = family(process)
        assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert_all_end(started)
    return True


def lose(cache: Path, moments: random.Random) -> None:
    """Remove the record and what the last few stages stored, so that there is work again."""
    shutil.rmtree(cache / "cells", ignore_errors=True)
    for stage in LATEST_FIRST[: moments.randint(1, len(LATEST_FIRST))]:
        shutil.rmtree(cache / "artifacts" / stage, ignore_errors=True)


def kill_at(fraction: float, cache: Path, quiet: Undisturbed, moments: random.Random) -> None:
    """Kill a run after this fraction of the time it would take; again, if it was faster."""
    for hurry in (1, 0.9, 0.8, 0.7, 0.6):
        if (cache / "cells").is_dir():
            lose(cache, moments)
        if killed_after(hurry * fraction * quiet.remaining(cache), cache):
            return
    raise AssertionError(f"no run lasts for {fraction} of what it is expected to")


@pytest.mark.parametrize("seed", range(CACHES))
def test_killed_five_times_it_ends_with_the_same_record(
    tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    """Over all caches one kill falls into each twentieth of a run."""
    moments = random.Random(seed)
    fractions = [(i * CACHES + seed + moments.random()) / (CACHES * KILLS) for i in range(KILLS)]
    for fraction in moments.sample(fractions, KILLS):
        kill_at(fraction, tmp_path, undisturbed, moments)
    resumed = record(*CHEAP, cache=tmp_path)
    assert resumed["id"] == undisturbed.record["id"]
    assert scores(resumed) == scores(undisturbed.record)
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=tmp_path)


def wait_for_worker(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until the attack's process has been started."""
    while process.poll() is None:
        if found := family(process):
            return found
        time.sleep(0.02)
    raise AssertionError(process.communicate())


def test_an_orphaned_attack_ends_by_itself(tmp_path: Path) -> None:
    with start(*CHEAP, cache=tmp_path) as process:
        orphans = wait_for_worker(process)
        process.kill()
    assert_all_end(orphans)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later", [0.0, 0.3])
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, undisturbed: Undisturbed, number: signal.Signals, later: float
) -> None:
    with start(*CHEAP, cache=tmp_path, preexec_fn=heed_signals) as process:
        workers = wait_for_worker(process)
        time.sleep(later * undisturbed.at_least)
        workers += family(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "Interrupted. The same command goes on where this one stopped."
    assert scratch(tmp_path, process.pid) == []
    assert_all_end(workers)

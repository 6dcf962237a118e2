"""Whatever ends a run, the same command goes on, and the record is that of a quiet day."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from commandline import UNET, record, scores, start, succeed

KILLS = 5
"""In each of four caches: twenty in all."""


@dataclass(frozen=True)
class Undisturbed:
    """A run that nobody disturbed."""

    record: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    started = time.monotonic()
    values = record(*UNET, cache=tmp_path_factory.mktemp("quiet"))
    return Undisturbed(values, time.monotonic() - started)


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes that a command has started."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def assert_all_end(processes: list[psutil.Process]) -> None:
    """They were told by nobody: they notice that the one they worked for is gone."""
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def kill_after(seconds: float, cache: Path) -> None:
    """Start the evaluation, kill it, and wait for what it leaves to end."""
    with start(*UNET, cache=cache) as process:
        time.sleep(seconds)
        started = family(process)
        process.kill()
    assert_all_end(started)


@pytest.mark.parametrize("seed", range(4))
def test_killed_five_times_it_ends_with_the_same_record(
    tmp_path: Path, undisturbed: Undisturbed, seed: int
) -> None:
    moments = random.Random(seed)
    for _ in range(KILLS):
        kill_after(moments.uniform(0.1, 0.6) * undisturbed.seconds, tmp_path)
    resumed = record(*UNET, cache=tmp_path)
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
    with start(*UNET, cache=tmp_path) as process:
        orphans = wait_for_worker(process)
        process.kill()
    assert_all_end(orphans)


def heed_signals() -> None:
    """A test run in the background may have been told to ignore Ctrl-C, which is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later", [0.0, 0.3])
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, undisturbed: Undisturbed, number: signal.Signals, later: float
) -> None:
    with start(*UNET, cache=tmp_path, preexec_fn=heed_signals) as process:
        workers = wait_for_worker(process)
        time.sleep(later * undisturbed.seconds)
        workers += family(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "Interrupted. The same command goes on where this one stopped."
    assert list((tmp_path / "tmp").iterdir()) == []
    assert_all_end(workers)

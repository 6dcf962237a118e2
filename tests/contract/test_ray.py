"""A real Ray cluster of two nodes on this machine, one of which dies while cells run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import evaluate

pytest.importorskip("ray")

OPTIONS: dict[str, Any] = {
    "private_size": 40,
    "public_size": 120,
    "test_size": 60,
    "metrics": "snr_db",
    "only": "privacy",
    "threads": 1,
}
DEFENSES, ATTACKS = ("none", "mixup"), ("identity", "nearest")


def command(*more: str) -> list[str]:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    grid = [f"--defense={name}" for name in DEFENSES] + [f"--attack={name}" for name in ATTACKS]
    engine = ("--engine", "ray", "--json", *more)
    return [sys.executable, "-m", "harness", "matrix", *options, *grid, *engine]


def start(cache: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HARNESS_CACHE": str(cache)},
    )


def ended(process: subprocess.Popen[str], within: float = 300) -> tuple[str, str]:
    """What a command printed until it ended; one that does not end in time is killed."""
    try:
        return process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def stored(cache: Path) -> int:
    """How many outcomes of stages there are."""
    return len(list(cache.glob("artifacts/*/*/facts.json")))


def wait_for(process: subprocess.Popen[str], cache: Path, outcomes: int) -> None:
    """Wait until a run has stored so much."""
    while stored(cache) < outcomes:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@dataclass(frozen=True)
class Nodes:
    """The process that holds two nodes."""

    process: subprocess.Popen[str]
    address: str

    def lose_one(self) -> None:
        """Kill the second node."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "gone\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    nodes = [sys.executable, str(Path(__file__).with_name("ray_nodes.py"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(nodes, text=True, **pipes) as process:
        assert process.stdout
        yield Nodes(process, process.stdout.readline().strip())


def test_a_node_dies_while_cells_run_and_all_records_appear_once(
    cluster: Nodes, tmp_path: Path
) -> None:
    cache = tmp_path / "shared"
    process = start(cache, "--address", cluster.address)
    wait_for(process, cache, 2)
    cluster.lose_one()
    out, err = ended(process)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    made = sorted(values["id"] for values in json.loads(out))
    assert made == sorted(alone(tmp_path / "alone"))
    assert made == sorted(path.stem for path in (cache / "records").glob("*.json"))


def alone(cache: Path) -> list[str]:
    """The ids of single evaluations of the same cells."""
    cells = [(defense, attack) for defense in DEFENSES for attack in ATTACKS]
    return [
        evaluate(cache=cache, defense=defense, attack=attack, **OPTIONS).id
        for defense, attack in cells
    ]


def test_a_task_that_no_node_has_room_for_is_refused(cluster: Nodes, tmp_path: Path) -> None:
    process = start(tmp_path, "--address", cluster.address, "--threads", "64")
    out, err = ended(process)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("Error: No node of the cluster has 64 CPUs, which one task takes")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "There is no Ray cluster to use at '127.0.0.1:1': "),
        ("head", "'head' is no address of a Ray cluster: give host:port, or auto."),
    ],
)
def test_an_address_where_nothing_is_is_refused(tmp_path: Path, address: str, message: str) -> None:
    process = start(tmp_path, "--address", address)
    out, err = ended(process)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"Error: {message}")


@pytest.mark.parametrize("own", [True, False])
def test_an_interrupted_run_leaves_nobody_at_work(
    cluster: Nodes, tmp_path: Path, own: bool
) -> None:
    """Neither on the cluster that it started, which ends with it, nor on one that was there."""
    process = start(tmp_path, *([] if own else ["--address", cluster.address]))
    wait_for(process, tmp_path, 1)
    started = psutil.Process(process.pid).children(recursive=True)
    busy = [each for each in psutil.process_iter() if at_work(each, tmp_path)]
    process.send_signal(signal.SIGTERM)
    out, err = ended(process)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "Interrupted. The same command goes on where this one stopped."
    assert busy
    assert psutil.wait_procs([*started, *busy], timeout=30)[1] == []
    assert list((tmp_path / "tmp").glob("*cluster*")) == []


def at_work(process: psutil.Process, cache: Path) -> bool:
    """Whether it is a process of the cluster that does steps."""
    try:
        return process.environ().get("HARNESS_CACHE") == str(cache) and "ray" in process.name()
    except psutil.Error:
        return False

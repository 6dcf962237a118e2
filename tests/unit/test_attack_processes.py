"""Where attack processes come from: each is fresh, alone, and ends with its own word."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.api import Budget
from harness.api.errors import CellFailed, MachineFault
from harness.sandbox import process as processes
from harness.sandbox.process import GONE, AttackProcess, Forked, ForkServers, Workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers are for Linux")

BUDGET = Budget(60.0, 4096, 1)
STRANGE = {"action": "dance"}
"""A job that no attack's process knows: it says so, and lives on."""


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> ForkServers:
    """Fork servers of this test alone, whatever others in this process keep."""
    own = ForkServers()
    monkeypatch.setattr(processes, "FORK_SERVERS", own)
    return own


def silent(*_: object) -> None:
    """Nobody hears how far it is."""


def number(process: AttackProcess) -> int:
    """Of a process that has shown that it serves jobs."""
    with pytest.raises(CellFailed, match="KeyError: 'dance'"):
        process.ask(STRANGE, BUDGET, silent)
    assert process._process.pid
    return process._process.pid


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, threads=1)
    yield made
    made.close()


def test_attacks_are_siblings_each_in_a_session_of_its_own(workers: Workers) -> None:
    with workers.take() as one, workers.take() as two:
        numbers = {number(one), number(two)}
        parents = {psutil.Process(each).ppid() for each in numbers}
        assert len(numbers) == 2
        assert [os.getsid(each) for each in numbers] == list(numbers)
        assert len(parents) == 1
        assert os.getpid() not in parents


def test_what_they_come_from_is_told_nothing_and_lends_nothing(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory was never the owner's, and a child has no handle but its own streams."""
    monkeypatch.setenv("HARNESS_CACHE", "/where/the/truth/lies")
    with workers.take() as one, workers.take() as two:
        number(one)
        child = psutil.Process(number(two))
        server = psutil.Process(child.ppid())
        assert server.cmdline()[1:3] == ["-m", "harness.sandbox"]
        for process in (server, child):
            assert not [name for name in process.environ() if name.startswith("HARNESS_")]
        handles = Path(f"/proc/{child.pid}/fd").iterdir()
        kinds = {str(handle.readlink()).partition(":")[0] for handle in handles}
        assert kinds == {"pipe", os.devnull, str(two.log)}


def test_an_attack_that_dies_says_how_and_the_next_is_well(workers: Workers) -> None:
    with workers.take() as process:
        os.kill(number(process), signal.SIGKILL)
        with pytest.raises(CellFailed, match="was killed by SIGKILL"):
            process.ask(STRANGE, BUDGET, silent)
    with workers.take() as process:
        number(process)


def test_several_deaths_are_told_apart_and_the_fork_server_lives(workers: Workers) -> None:
    workers.expected = 4
    servers = set()
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        with workers.take() as process:
            one = number(process)
            servers.add(psutil.Process(one).ppid())
            os.kill(one, how)
            with pytest.raises(CellFailed, match=f"was killed by {how.name}"):
                process.ask(STRANGE, BUDGET, silent)
    with workers.take() as process:
        servers.add(psutil.Process(number(process)).ppid())
    assert len(servers) == 1


def test_what_was_never_needed_is_closed_without_waiting_for_torch(tmp_path: Path) -> None:
    made = Workers(tmp_path, threads=1)
    made.warm()
    spare = made._spare
    assert spare is not None
    assert isinstance(spare._process, Forked)
    made.close()
    assert spare._process.pid is None
    assert spare._process.returncode is None


def test_one_that_starts_too_slowly_says_so(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.01)
    with (
        workers.take() as process,
        pytest.raises(MachineFault, match=r"no process could be started within 0\.01 s"),
    ):
        process.ask(STRANGE, BUDGET, silent)


def test_a_fork_server_that_cannot_start_says_why(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with (
        workers.take() as process,
        pytest.raises(MachineFault, match=f"(?s){GONE}.*PYTHONHOME|{GONE}.*encodings"),
    ):
        process.ask(STRANGE, BUDGET, silent)


def test_a_fork_server_that_is_gone_is_replaced(workers: Workers) -> None:
    with workers.take() as process:
        one = number(process)
        first = psutil.Process(one).ppid()
        os.kill(first, signal.SIGKILL)
        os.kill(one, signal.SIGKILL)
        with pytest.raises(MachineFault, match=GONE):
            process.ask(STRANGE, BUDGET, silent)
    with workers.take() as process:
        assert psutil.Process(number(process)).ppid() != first


def test_it_ends_with_its_last_user(tmp_path: Path, servers: ForkServers) -> None:
    with servers.kept():
        numbers = set()
        for _ in range(2):
            workers = Workers(tmp_path, threads=1)
            with workers.take() as process:
                numbers.add(psutil.Process(number(process)).ppid())
            workers.close()
        (server,) = numbers
        assert psutil.pid_exists(server)
    assert not psutil.pid_exists(server)

"""What the machine does to a run is never told of the cell; how it confines is in the record."""

import os
import signal

import psutil
import pytest

from harness import evaluate
from harness.running.workplace import confinement
from harness.sandbox import process as processes
from harness.sandbox.jail import UNCONFINED, Walls
from harness.sandbox.process import AttackProcess, ForkServers

CELL = {
    "private_size": 10,
    "public_size": 20,
    "test_size": 10,
    "attack": "wiener",
    "metrics": "snr_db",
    "only": "privacy",
}


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    """A cache, and fork servers of this test alone."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(processes, "FORK_SERVERS", ForkServers())


def test_a_fork_server_that_dies_costs_no_cell(monkeypatch):
    quiet = evaluate(**CELL, seed=1)
    ask, killed = AttackProcess.ask, []

    def asked(self, *arguments, **options):
        if not killed:
            self._tell()
            self._await()
            killed.append(psutil.Process(self._process.pid).ppid())
            for number in (killed[0], self._process.pid):
                os.kill(number, signal.SIGKILL)
        return ask(self, *arguments, **options)

    monkeypatch.setattr(AttackProcess, "ask", asked)
    disturbed = evaluate(**CELL, seed=2)
    assert killed
    assert (quiet.status, disturbed.status) == ("ok", "ok")


@pytest.mark.skipif(not Walls.here().stand, reason="nothing confines here")
def test_a_record_says_how_its_attacks_were_confined(monkeypatch):
    within = evaluate(**CELL)
    assert within.environment["confined"] == {
        "landlock": Walls.here().landlock,
        "seccomp": True,
    }
    monkeypatch.setenv(UNCONFINED, "1")
    without = evaluate(**CELL, seed=3)
    assert without.environment["confined"] == {"landlock": 0, "seccomp": False}
    assert evaluate(**CELL, seed=3).id == without.id


def test_the_weakest_walls_of_all_are_told():
    strong, none = {"landlock": 7, "seccomp": True}, {}
    assert confinement([strong, none]) == {"landlock": 0, "seccomp": False}
    assert confinement([strong, strong]) == strong
    assert confinement([]) is None

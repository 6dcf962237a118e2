"""Whatever the disk refuses is one message; nothing half-written is served, and all goes on."""

import errno
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from harness import evaluate
from harness.api.errors import IntegrityError, StoreError
from harness.sandbox.process import FORK_SERVERS, AttackProcess
from harness.store.paths import KEY
from harness.store.upkeep import verify

CELL = {
    **{"private_size": 10, "public_size": 20, "test_size": 10, "threads": 1},
    **{"attack": "wiener", "metrics": "snr_db", "only": "privacy"},
}
FAULTS = int(os.environ.get("FAULTS", "6"))
"""So many of a run's calls are refused: `FAULTS=1000 pytest tests/redteam/test_faults.py` tries
each of them."""
CHANGES = {"os.mkdir", "os.rename", "os.link", "os.truncate"}


class Disk:
    """Refuses a call of this process below a folder, counted from when it is told to."""

    def __init__(self):
        self.folder, self.seen, self.refused = None, 0, 0
        self.number = self.first = self.last = None
        sys.addaudithook(self)  # which nothing takes away again

    def __call__(self, event, arguments):
        if self.folder is None or not self.concerns(event, arguments):
            return
        self.seen += 1
        if self.first <= self.seen <= self.last:
            self.refused += 1
            raise OSError(self.number, os.strerror(self.number), str(arguments[0]))

    def concerns(self, event, arguments):
        if not arguments or not str(arguments[0]).startswith(self.folder):
            return False
        if str(arguments[0]).startswith(f"{self.folder}/assets"):
            return False  # that they were verified is noted there, or is verified again
        if event == "os.mkdir" and os.path.isdir(arguments[0]):
            return False
        if event != "open":
            return not self.reading and event in CHANGES
        return self.reading != bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))

    @contextmanager
    def refusing(self, folder, number, first, last, *, reading=False):
        """From the `first` call to the `last` one; reads, or all that writes."""
        self.number, self.first, self.last, self.reading = number, first, last, reading
        self.seen = self.refused = 0
        self.folder = str(folder)
        try:
            yield self
        finally:
            self.folder = None


DISK = Disk()
NEVER = sys.maxsize


@pytest.fixture(scope="module", autouse=True)
def fork_servers():
    with FORK_SERVERS.kept():
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A cache with a cell, its record's id, and how many calls that took."""
    cache = tmp_path_factory.mktemp("quiet")
    with DISK.refusing(cache, 0, NEVER, NEVER) as disk:
        record = evaluate(cache=cache, **CELL)
    return cache, record.id, disk.seen


def some(count):
    """Numbers of calls, spread over all of them."""
    return sorted({1 + count * i // FAULTS for i in range(FAULTS)} | {count})


def mended(cache):
    assert verify(remove=False) == []
    return evaluate(cache=cache, **CELL).id


@pytest.mark.parametrize("forever", [False, True], ids=["full once", "read-only from then on"])
def test_a_write_that_is_refused_is_said_once_and_leaves_nothing_half_done(cache, quiet, forever):
    number = errno.EROFS if forever else errno.ENOSPC
    for call in some(quiet[2]):
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        with (
            DISK.refusing(cache, number, call, NEVER if forever else call) as disk,
            pytest.raises(StoreError, match=os.strerror(number)) as told,
        ):
            evaluate(cache=cache, **CELL)
        assert disk.refused, call
        assert told.value.exit_code == 2
        assert {path.stem for path in cache.glob("records/*.json")} <= {quiet[1]}
        assert mended(cache) == quiet[1], call


def test_a_read_that_fails_is_said_once(cache, quiet):
    shutil.copytree(quiet[0], cache)
    shutil.rmtree(cache / "cells")
    with DISK.refusing(cache, 0, NEVER, NEVER, reading=True) as disk:
        evaluate(cache=cache, **CELL)
    for call in some(disk.seen):
        shutil.rmtree(cache / "cells", ignore_errors=True)
        with (
            DISK.refusing(cache, errno.EIO, call, NEVER, reading=True) as disk,
            pytest.raises(StoreError, match="Input/output error; check the disk") as told,
        ):
            evaluate(cache=cache, **CELL)
        assert disk.refused, call
        assert told.value.exit_code == 2
        assert mended(cache) == quiet[1]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [empty, cut])
@pytest.mark.parametrize("kind", [KEY, "cells/*", "records/*", "seals/*", "locks/*"])
def test_what_a_loss_of_power_leaves_is_never_served(cache, quiet, kind, harm):
    """Outputs of stages are damaged in the tests of bad input, features in those of features."""
    shutil.copytree(quiet[0], cache)
    paths = list(cache.glob(kind))
    assert paths
    for path in paths:
        harm(path)
    if kind not in ("seals/*", "locks/*"):
        with pytest.raises(IntegrityError, match="cache verify --remove") as told:
            evaluate(cache=cache, **CELL)
        assert told.value.exit_code == 3
        assert str(paths[0]) in str(told.value)
        assert verify(remove=True)
    assert mended(cache) == quiet[1]


def test_a_record_whose_seal_was_lost_is_found(cache, quiet):
    shutil.copytree(quiet[0], cache)
    shutil.rmtree(cache / "seals")
    with pytest.raises(IntegrityError, match="seal"):
        evaluate(cache=cache, **CELL)
    assert len(verify(remove=True)) == 1
    assert mended(cache) == quiet[1]


def test_a_disk_that_is_full_where_attacks_work_is_no_fault_of_theirs(
    cache, quiet, tmp_path, monkeypatch
):
    desk = tmp_path / "desk"
    monkeypatch.setattr("harness.running.workplace.workplaces", lambda: desk)
    ask = AttackProcess.ask

    def asked(self, *arguments, **options):
        """As the attack's own process would meet it: it cannot be told what to refuse."""
        DISK.folder = str(desk)
        return ask(self, {"action": "call", "function": "os:nothing"}, *arguments[1:], **options)

    monkeypatch.setattr(AttackProcess, "ask", asked)
    with (
        DISK.refusing(tmp_path / "nowhere", errno.ENOSPC, 1, NEVER),
        pytest.raises(StoreError, match="No space left on device"),
    ):
        evaluate(cache=cache, **CELL)
    assert not list(cache.glob("records/*"))
    monkeypatch.undo()
    monkeypatch.setenv("HARNESS_CACHE", str(cache))
    assert mended(cache) == quiet[1]


def told(*options, full):
    """What `harness list` says, with these of its streams on a disk that is full."""
    with open("/dev/full", "wb") as disk:
        streams = {name: disk if name in full else subprocess.PIPE for name in ("stdout", "stderr")}
        command = [sys.executable, "-m", "harness", "list", *options]
        done = subprocess.run(command, check=False, **streams)
    return done.returncode, done.stderr


def test_an_output_that_cannot_be_written_is_said_where_it_can_be():
    said = b"Error: The output cannot be written: No space left on device.\n"
    assert told(full=["stdout"]) == (2, said)
    assert told(full=["stdout", "stderr"]) == (2, None)
    assert told("--nope", full=["stderr"]) == (2, None)
    assert told(full=["stderr"]) == (0, None)

"""Whatever a process says, leaves or starts, its parent says so in a line and goes on."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import save_file

from harness.api.errors import CellFailed
from harness.api.plugins import silent
from harness.api.view import Budget
from harness.running.workplace import diagnostics_in, tensors_in
from harness.sandbox import process as processes
from harness.sandbox.process import AttackProcess, ForkServers

HERE = str(Path(__file__).parent)
ENDS = {
    "ends_at_once": "the attack's process ended with exit code 0",
    "writes_junk": "the attack wrote into the pipe",
    "says_what_is_no_message": "the attack wrote into the pipe",
    "nests_deeply": "the attack wrote into the pipe",
    "never_ends_its_line": "the attack wrote into the pipe",
    "prints_without_end": "the attack printed more than 1 MB",
    "starts_many_processes": "the attack started more than 64 processes",
    "takes_much_memory_in_children": "the attack used more than its limit of 900 MB",
    "raises_what_is_no_exception": "the attack's process was killed by SIGINT",
    "has_a_long_excuse": "ValueError: xxx",
    "opens_many_files": "OSError: [Errno 24] Too many open files",
    "says_how_it_is_confined": "the attack wrote into the pipe",
    "ends_by_a_signal_without_a_name": "the attack's process was killed by signal 35",
}


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(processes, "LONGEST_LOG", 1 << 20)
    (tmp_path / "out").mkdir()
    servers = ForkServers()  # of this environment, whatever others in this process keep
    with servers.kept(), AttackProcess(tmp_path / "log", 1, servers.start) as started:
        started.confine([tmp_path], [tmp_path / "out"])
        yield started


def job(deed, tmp_path):
    return {"action": "call", "function": f"leavings:{deed}", "out": str(tmp_path / "out")}


@pytest.mark.parametrize(("deed", "told"), ENDS.items())
def test_it_ends_in_one_message_of_bounded_size(deed, told, start, tmp_path):
    before = psutil.Process().memory_info().rss
    with pytest.raises(CellFailed) as failed:
        start.ask(job(deed, tmp_path), Budget(20.0, 900, 1), silent)
    assert str(failed.value).startswith(told)
    assert len(str(failed.value)) < 100_000
    assert psutil.Process().memory_info().rss - before < 200 << 20


class LongAnswers:
    """A feed that has an answer of many bytes to every question, soon or late."""

    def __init__(self, seconds):
        self.seconds = seconds

    def piece(self, _round, _number):
        time.sleep(self.seconds)
        return {"file": "x" * 30_000, "rows": 1, "last": True}

    def make_ahead(self):
        pass


@pytest.mark.parametrize(
    ("deed", "seconds", "told"),
    [
        ("asks_and_never_listens", 0.0, "the learner asked for two pieces at once"),
        ("asks_without_end", 0.02, "the attack did not end within 2 s"),
    ],
)
def test_one_that_is_fed_ends_whatever_it_asks(deed, seconds, told, start, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 1)
    began = time.monotonic()
    with pytest.raises(CellFailed, match=told):
        start.ask(job(deed, tmp_path), Budget(2.0, 900, 1), silent, feed=LongAnswers(seconds))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("deed", ["leaves_a_daemon", "leaves_a_daemon_and_ends"])
def test_nothing_outlives_it(deed, start, tmp_path):
    try:
        start.ask(job(deed, tmp_path), Budget(3.0, 900, 1), silent)
    except CellFailed:
        assert deed == "leaves_a_daemon_and_ends"
    daemon = int((tmp_path / "out" / "daemon").read_text())
    start.close()
    for _ in range(50):
        if not psutil.pid_exists(daemon):
            return
        time.sleep(0.1)
    raise AssertionError(f"{daemon} is still there")


def test_what_the_machine_was_busy_with_others_is_no_time_of_its_own(start, tmp_path, monkeypatch):
    start.ask(job("takes_a_second", tmp_path), Budget(20.0, 900, 1), silent)
    assert start._delayed() > 0
    short = Budget(0.4, 900, 1)
    monkeypatch.setattr(AttackProcess, "_delayed", lambda _self: time.monotonic())
    start.ask(job("takes_a_second", tmp_path), short, silent)
    monkeypatch.setattr(processes, "PATIENCE", 1)
    with pytest.raises(CellFailed, match=r"did not end within 0\.4 s"):
        start.ask(job("takes_a_second", tmp_path), short, silent)


def a_pipe(path):
    os.mkfifo(path)


def a_folder(path):
    path.mkdir()


def a_link(path):
    save_file({"x": torch.ones(1)}, path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def an_endless_device(path):
    path.symlink_to("/dev/zero")


def text(path):
    path.write_text("no tensors")


def nothing(path):
    path.write_bytes(b"")


def a_header_that_lies(path):
    path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")


def a_sparse_terabyte(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


LEFT = (a_pipe, a_folder, a_link, an_endless_device, text, nothing, a_header_that_lies)


@pytest.mark.parametrize("leave", [*LEFT, a_sparse_terabyte])
def test_what_is_left_in_place_of_tensors_is_told(leave, tmp_path):
    leave(tmp_path / "result")
    with pytest.raises(CellFailed, match=r"^the attack left "):
        tensors_in(tmp_path / "result")


NUMBERS = (
    '{"x": NaN}',
    '{"x": 1e999}',
    '{"x": "1"}',
    '{"x": {"y": 1}}',
    "[1]",
    "[" * 100_000,
    json.dumps({"x" * 300: 1.0}),
    json.dumps({str(i): 1.0 for i in range(200_000)}),
    "\x00",
)


@pytest.mark.parametrize("said", NUMBERS, ids=range(len(NUMBERS)))
def test_what_is_left_in_place_of_numbers_is_told(said, tmp_path):
    (tmp_path / "numbers").write_text(said)
    with pytest.raises(CellFailed, match=r"^the attack left "):
        diagnostics_in(tmp_path / "numbers")


@pytest.mark.parametrize("leave", [a_pipe, a_folder, an_endless_device])
def test_what_is_no_file_is_not_read_for_numbers(leave, tmp_path):
    leave(tmp_path / "numbers")
    with pytest.raises(CellFailed, match="is no plain file"):
        diagnostics_in(tmp_path / "numbers")


def test_what_is_read_stays_what_it_was(tmp_path):
    """Whoever left it may still be there."""
    save_file({"x": torch.ones(5000)}, tmp_path / "result")
    found = tensors_in(tmp_path / "result")
    with (tmp_path / "result").open("wb") as file:
        file.truncate(1)
    assert float(found["x"].sum()) == 5000.0


def test_what_an_honest_attack_leaves_is_read(tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "result")
    (tmp_path / "numbers").write_text('{"steps": 3, "loss": 0.5}')
    assert tensors_in(tmp_path / "result")["x"].tolist() == [1.0, 1.0]
    assert diagnostics_in(tmp_path / "numbers") == {"steps": 3.0, "loss": 0.5}

"""What has been evaluated before is answered without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commandline import environment

from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.record import record_key
from harness.running.run import equip
from harness.scoring.flags import Flag
from harness.scoring.summary import MetricScore
from harness.store.record import Records, RunRecord, Used

pytestmark = pytest.mark.core

WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None\n"
    "from harness.__main__ import main; sys.argv[0] = 'harness'; main()\n"
)
ASKED: dict[str, Any] = {"attack": "linear", "device": "cpu", "threads": 1, "seed": 77}
COMMAND = ["evaluate", "--attack", "linear", "--device", "cpu", "--threads", "1", "--seed", "77"]


def used(name: str) -> Used:
    return Used(name=name, version="1", distribution="d", source_sha256="0", config={})


@pytest.fixture
def kept(tmp_path: Path) -> RunRecord:
    """A record that answers for `COMMAND`."""
    request = make_request(**ASKED)
    cell = equip(plan(request, registry()), tmp_path)
    record = RunRecord(
        status="ok",
        request=request,
        defense=(used("singmix"),),
        attack=used("linear"),
        dataset=used("fashion-mini"),
        victim=used("cnn"),
        space=used("pixels"),
        threat_model="informed",
        release_kind="encodings",
        device="cpu",
        threads=1,
        splits={"private": 2, "public": 2, "test": 2, "targets": 2},
        privacy={"snr_db": MetricScore(unit="dB", mean=1.25, std=0.5, n=2, worst=1.75)},
        flags=(Flag(name="unranked", message="made by hand"),),
        verdict="A verdict made by hand.",
    ).sealed()
    Records(tmp_path).save(record, record_key(cell))
    return record


def run(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(cache), check=False
    )


def test_a_stored_record_is_printed(tmp_path: Path, kept: RunRecord) -> None:
    done = run(*COMMAND, cache=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "A verdict made by hand." in done.stdout
    assert "1.25 ± 0.5" in done.stdout
    done = run(*COMMAND, "--json", cache=tmp_path)
    assert json.loads(done.stdout) == kept.canonical()


def test_a_stored_record_is_shown(tmp_path: Path, kept: RunRecord) -> None:
    assert "A verdict made by hand." in run("show", kept.id[:10], cache=tmp_path).stdout


def test_a_plan_is_shown(tmp_path: Path) -> None:
    done = run(*COMMAND, "--dry-run", "--json", cache=tmp_path)
    assert json.loads(done.stdout)["stages"]["release"] == "to do"


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    done = run("doctor", cache=tmp_path)
    assert done.returncode == 1
    assert "torch: not installed" in done.stdout


def test_what_is_not_stored_says_what_it_needs(tmp_path: Path) -> None:
    done = run(*COMMAND, cache=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "torch" in done.stderr

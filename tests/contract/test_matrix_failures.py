"""Many cells, some of which fail: each is a record that says why, and the others suffer nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from strangers import SMALL, Machine, Ran, install

ROGUES = Path(__file__).with_name("rogues")
ENTRY = "from rogue_plugins import harness_attacks, harness_defenses"
DEFENSES = ("none", "fails-to-encode", "kills-its-owner")
ATTACKS = ("identity", "raises")
KILLED = "the defense kills-its-owner's process was killed by SIGKILL"


def matrix(*more: str) -> tuple[str, ...]:
    """Every rogue defense against an honest attack and a rogue one."""
    grids = [part for name in DEFENSES for part in ("--defense", name)]
    grids += [part for name in ATTACKS for part in ("--attack", name)]
    return ("matrix", *SMALL[1:], "--dataset", "stripes", *grids, *more)


@pytest.fixture(scope="module")
def rogue_machine(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    site = tmp_path_factory.mktemp("rogues")
    shutil.copytree(ROGUES, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    install(site, "rogues", ENTRY)
    return Machine(tmp_path_factory.mktemp("cache"), (example, site))


@pytest.fixture(scope="module")
def ran(rogue_machine: Machine) -> Ran:
    return rogue_machine.harness(*matrix("--workers", "2"))


def by_cell(ran: Ran) -> dict[tuple[str, str], dict[str, Any]]:
    return {(v["request"]["defense"], v["request"]["attack"]): v for v in ran.json}


def test_every_cell_has_its_record_and_the_exit_code_tells_of_failures(ran: Ran) -> None:
    assert (ran.code, ran.err) == (1, "")
    assert list(by_cell(ran)) == [(defense, attack) for defense in DEFENSES for attack in ATTACKS]


def test_an_attack_that_fails_takes_its_own_cell_alone(ran: Ran) -> None:
    cells = by_cell(ran)
    assert cells["none", "identity"]["status"] == "ok"
    assert cells["none", "raises"]["error"] == "RuntimeError: a rogue's own words"


def test_a_stage_that_fails_takes_all_cells_that_wait_for_it(ran: Ran) -> None:
    found = [by_cell(ran)["fails-to-encode", attack] for attack in ATTACKS]
    assert {record["status"] for record in found} == {"failed"}
    assert all("raised RuntimeError: no image like that" in record["error"] for record in found)


def test_a_defense_that_kills_its_process_kills_no_other(ran: Ran) -> None:
    found = [by_cell(ran)["kills-its-owner", attack] for attack in ATTACKS]
    assert [(record["status"], record["error"]) for record in found] == [("failed", KILLED)] * 2


def test_failures_are_tried_again_only_when_asked(ran: Ran, rogue_machine: Machine) -> None:
    shown = rogue_machine.harness(*matrix("--dry-run"))
    states = [cell["state"] for cell in shown.json]
    assert states == ["done", *["failed"] * 5]
    assert not any(cell["runs"] for cell in shown.json)
    shown = rogue_machine.harness(*matrix("--dry-run", "--retry", "--limit", "2"))
    assert [cell["runs"] for cell in shown.json] == [False, True, True, False, False, False]
    again = rogue_machine.harness(*matrix("--workers", "2"))
    assert (again.code, again.out) == (1, ran.out)
    retried = rogue_machine.harness(*matrix("--workers", "2", "--retry", "--limit", "1"))
    before, after = (by_cell(each)["none", "raises"] for each in (ran, retried))
    assert (retried.code, after["id"]) == (1, before["id"])
    assert after["created"] > before["created"]


def test_nothing_is_left_behind(ran: Ran, rogue_machine: Machine) -> None:
    assert rogue_machine.left_behind() == []


def test_what_is_no_cell_s_own_fault_stops_the_run(rogue_machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("in the way", encoding="utf-8")
    broken = Machine(tmp_path, rogue_machine.sites)
    stopped = broken.harness(*matrix("--workers", "2"))
    assert (stopped.code, stopped.out) == (2, "")
    assert stopped.err.startswith("Error: ")
    assert "set HARNESS_CACHE to another folder" in stopped.err
    assert not (tmp_path / "records").exists()

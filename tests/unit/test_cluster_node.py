"""A cluster's node does nothing where its results would not be those that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.run import equip
from harness.scheduling.cluster import work
from harness.scheduling.steps import Task, tasks_of

pytestmark = pytest.mark.core

ASKED: dict[str, Any] = {"defense": "mixup", "attack": "lmmse", "threads": 1}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folder."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    return tmp_path


def release(root: Path) -> Task:
    cell = equip(plan(make_request(**ASKED), registry()), root)
    return tasks_of(cell, ASKED)[0]


def test_a_node_without_the_shared_folder_says_how_to_share_it(shared: Path) -> None:
    outcome = work(release(shared).id, "release", ASKED, str(shared / "token"), None)
    assert outcome["status"] == "fatal"
    assert f"does not see {shared} as it is where the run was started" in outcome["error"]


def test_a_node_with_other_code_says_what_has_to_be_the_same(shared: Path) -> None:
    (shared / "token").touch()
    outcome = work("release of other code", "release", ASKED, str(shared / "token"), None)
    assert outcome["status"] == "fatal"
    assert "the same versions of harness, plugins and packages" in outcome["error"]

"""Strangers' modules are tried before anybody imports them."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from harness.sandbox import trial


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules of strangers lie that this process never imports."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.syspath_prepend(site)
    return site


def stranger(site: Path, name: str, source: str) -> EntryPoint:
    (site / f"{name}.py").write_text(source)
    return EntryPoint(name, name, "harness.plugins")


def test_one_that_never_ends_is_given_up(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SECONDS", 1.5)
    sleeper = stranger(site, "sleeper", "import time\ntime.sleep(60)")
    assert trial.tried(sleeper) == "cannot be imported: that did not end within 1.5 s"


def test_one_is_tried_again_only_when_it_has_changed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(trial, "_outcome", lambda module: asked.append(module) or "bad")
    point = stranger(site, "changing", "pass")
    assert [trial.tried(point), trial.tried(point), len(asked)] == ["bad", "bad", 1]
    stranger(site, "changing", "pass  # better")
    assert trial.tried(point) == "bad"
    assert len(asked) == 2


def test_what_it_may_do_is_find_nothing_wrong(site: Path) -> None:
    source = "import json, os, threading\nprint('hello')\nclass X: pass\n"
    assert trial.tried(stranger(site, "honest", source)) == ""


def test_where_there_is_no_cache_one_is_tried_all_the_same(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "cache"))
    assert trial.tried(stranger(site, "sound", "pass")) == ""
    found = trial.tried(stranger(site, "ending", "import os\nos._exit(3)"))
    assert found == "cannot be imported: that ended Python with exit code 3"

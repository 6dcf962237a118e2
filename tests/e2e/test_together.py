"""Two processes that want the same cell share the work."""

from __future__ import annotations

import json
from pathlib import Path

from commandline import UNET, start, succeed


def test_two_at_once_share_the_work(tmp_path: Path) -> None:
    pair = [start(*UNET, "--json", cache=tmp_path) for _ in range(2)]
    ended = [process.communicate(timeout=180) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], ended
    one, other = (json.loads(out) for out, _ in ended)
    assert one["id"] == other["id"]
    both = one["timing"].keys() & other["timing"].keys() - {"picture"}
    assert {
        "attack unet",
        "prepare unet",
    } <= both  # of attacks and learners it is told whoever made it
    assert all(name.startswith(("attack ", "prepare ", "learn ")) for name in both)
    assert all(one["timing"][name] == other["timing"][name] for name in both)  # made but once
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_cells_that_differ_in_their_attack_share_the_release(tmp_path: Path) -> None:
    attacks = ("identity", "nearest")
    command = (*UNET, "--only", "privacy", "--json")
    pair = [start(*command, "--attack", attack, cache=tmp_path) for attack in attacks]
    ended = [process.communicate(timeout=180) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], ended
    one, other = (json.loads(out) for out, _ in ended)
    assert one["artifacts"]["release"] == other["artifacts"]["release"]
    assert [("release" in values["timing"]) for values in (one, other)].count(True) == 1
    assert one["privacy"] == other["companions"]["identity"]

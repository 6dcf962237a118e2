"""Every command besides `evaluate`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commandline import (
    PRIVACY,
    complaint,
    environment,
    harness,
    on_terminal,
    record,
    start,
    succeed,
)

COMMANDS = [
    ["evaluate"],
    ["control"],
    ["new-plugin"],
    ["check"],
    ["challenge"],
    ["challenge", "make"],
    ["challenge", "solve"],
    ["challenge", "score"],
    ["keygen"],
    ["release"],
    ["inspect"],
    ["learn"],
    ["predict"],
    ["list"],
    ["describe"],
    ["show"],
    ["assets"],
    ["assets", "list"],
    ["assets", "where"],
    ["assets", "fetch"],
    ["cache"],
    ["cache", "info"],
    ["cache", "prune"],
    ["cache", "verify"],
    ["doctor"],
    ["schema"],
]
TAUS = ("1", "1e-2")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def records(cache: Path) -> list[dict[str, Any]]:
    """The same images under two strengths of the same defense."""
    return [record(*PRIVACY, "--defense", f"singmix[tau={tau}]", cache=cache) for tau in TAUS]


@pytest.mark.core
@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_help_has_an_example_that_starts_with_harness(tmp_path: Path, command: list[str]) -> None:
    text = succeed(*command, "--help", cache=tmp_path)
    assert f"harness {' '.join(command)}" in text.partition("  Example")[2]
    with start(*command, "-h", cache=tmp_path) as process:  # which imports all it needs by itself
        assert process.communicate(timeout=60) == (text, "")


@pytest.mark.core
def test_list_names_what_is_built_in(tmp_path: Path) -> None:
    listed = json.loads(succeed("list", "--json", cache=tmp_path))
    assert {"singmix", "none"} <= {entry["name"] for entry in listed["defenses"]}
    assert {"unet", "linear", "identity", "nearest"} <= {e["name"] for e in listed["attacks"]}
    assert "informed" in succeed("list", "threat_models", cache=tmp_path)


@pytest.mark.core
def test_describe_tells_the_law_and_its_weaknesses(tmp_path: Path) -> None:
    text = succeed("describe", "singmix", cache=tmp_path)
    assert "tau = 0.0001  (number > 0)" in text
    assert "||e_i|| = r" in text
    assert "known weaknesses:" in text
    facts = json.loads(succeed("describe", "unet", "--json", cache=tmp_path))
    assert facts["kind"] == "attacks"
    assert any("encodings" in needs for needs in facts["needs"])


def test_describe_takes_a_defenses_theory_to_the_data(tmp_path: Path) -> None:
    arguments = ("--dataset", "fashion-mini", "--private-size", "100", "--json")
    facts = json.loads(succeed("describe", "singmix[tau=1e-2]", *arguments, cache=tmp_path))
    tables = [*facts["analysis"], facts["ceilings"]]
    assert facts["analysis"]
    assert all(len(row) == len(t["columns"]) for t in tables for row in t["rows"])
    assert facts["ceilings"]["of"] == "singmix[tau=1e-2,noise=gaussian,calibrate=public]"
    rows = [row[:2] for row in facts["ceilings"]["rows"]]
    assert rows == [["singmix[tau=1e-2]", 1], ["singmix[tau=1e-2]", 10]]
    assert facts["ceilings"]["reasons"] == []


def test_describe_says_why_a_defense_has_no_ceiling(tmp_path: Path) -> None:
    arguments = ("--dataset", "fashion-mini", "--private-size", "100", "--json")
    found = json.loads(succeed("describe", "mixup", *arguments, cache=tmp_path))["ceilings"]
    assert found["rows"] == []
    assert found["reasons"]


def test_show_prints_what_evaluate_printed(cache: Path, records: list[dict[str, Any]]) -> None:
    printed = succeed(*PRIVACY, "--defense", "singmix[tau=1]", cache=cache)
    path = cache / "records" / f"{records[0]['id']}.json"
    for name in (records[0]["id"], records[0]["id"][:12], str(path)):
        assert succeed("show", name, cache=cache).strip() == printed.strip()
    assert json.loads(succeed("show", str(path), "--json", cache=cache)) == records[0]


def test_show_draws_one_image_across_records(
    tmp_path: Path, cache: Path, records: list[dict[str, Any]]
) -> None:
    from PIL import Image

    ids = [values["id"] for values in records]
    pictures = []
    for name, shown in (("both", ids), ("first", [ids[0], ids[0]]), ("second", [ids[1], ids[1]])):
        path = tmp_path / f"{name}.png"
        out = succeed("show", *shown, "--panel", str(path), "--target", "3", cache=cache)
        assert f"panel    {path}" in out
        with Image.open(path) as picture:
            picture.load()
            assert min(picture.size) > 100
        pictures.append(path.read_bytes())
    assert len(set(pictures)) == 3


def test_show_refuses_a_target_that_is_none(
    tmp_path: Path, cache: Path, records: list[dict[str, Any]]
) -> None:
    panel = tmp_path / "panel.png"
    arguments = (records[0]["id"], "--panel", str(panel), "--target", "40")
    done = harness("show", *arguments, cache=cache)
    assert "There is no target 40" in done.stderr
    assert (done.returncode, panel.exists()) == (2, False)


def test_show_asks_for_more_of_an_ambiguous_id(cache: Path, records: list[dict[str, Any]]) -> None:
    assert "is the beginning of 2 records" in complaint(harness("show", "", cache=cache), 2)


def test_cache_info_counts_what_prune_drops_and_it_is_made_again_to_the_bit(
    tmp_path: Path, cache: Path, records: list[dict[str, Any]]
) -> None:
    root = shutil.copytree(cache, tmp_path / "copy")
    facts = json.loads(succeed("cache", "info", "--json", cache=root))
    assert (facts["root"], facts["records"]) == (str(root), len(records))
    assert {"load", "release", "attack", "judge"} <= facts["artifacts"].keys()
    held = sum(count for count, _ in facts["artifacts"].values())
    assert json.loads(succeed("cache", "prune", "--json", cache=root))["artifacts"] == 0
    pruned = json.loads(succeed("cache", "prune", "--all", "--json", cache=root))
    assert pruned["artifacts"] == held
    assert json.loads(succeed("cache", "info", "--json", cache=root))["artifacts"] == {}
    kept = records[0]
    assert json.loads(succeed("show", kept["id"], "--json", cache=root)) == kept
    command = (*PRIVACY, "--defense", f"singmix[tau={TAUS[0]}]")
    assert record(*command, cache=root) == kept
    panel = harness("show", kept["id"], "--panel", str(tmp_path / "p.png"), cache=root)
    assert panel.returncode == 2
    assert "run its evaluation again" in panel.stderr
    shutil.rmtree(root / "cells")
    assert record(*command, cache=root)["artifacts"] == kept["artifacts"]


def test_verify_finds_nothing_in_a_good_cache(cache: Path, records: list[dict[str, Any]]) -> None:
    assert json.loads(succeed("cache", "verify", "--json", cache=cache)) == {
        "corrupt": [],
        "removed": False,
        "adopted": 0,
    }


@pytest.mark.core
def test_assets_say_where_they_are(tmp_path: Path) -> None:
    listed = {a["name"]: a for a in json.loads(succeed("assets", "list", "--json", cache=tmp_path))}
    assert listed["fashion-mini"]["state"] == "ready"
    assert listed["cifar10"]["state"] == "not fetched"
    folder = Path(succeed("assets", "where", "fashion-mini", cache=tmp_path).strip())
    assert (folder / "fashion-mini.npz").exists()


@pytest.mark.core
def test_columns_of_assets_do_not_collide(tmp_path: Path) -> None:
    listed = json.loads(succeed("assets", "list", "--json", cache=tmp_path))
    lines = succeed("assets", "list", cache=tmp_path).splitlines()
    assert len(lines) == len(listed)
    for asset, line in zip(listed, lines, strict=True):
        name, state, *size, summary = re.split(r" {2,}", line)
        assert (name, state, summary) == (asset["name"], asset["state"], asset["summary"])
        assert size == ([f"{asset['megabytes']:.0f} MB"] if asset["megabytes"] else [])


@pytest.mark.core
@pytest.mark.parametrize("width", [200, 80, 60])
def test_on_a_narrow_terminal_they_are_folded(tmp_path: Path, width: int) -> None:
    shown = on_terminal("assets", "list", cache=tmp_path, columns=width).splitlines()
    assert max(map(len, shown)) <= width
    names = [line.split()[0] for line in shown if not line.startswith(" ")]
    listed = json.loads(succeed("assets", "list", "--json", cache=tmp_path))
    assert names == [asset["name"] for asset in listed]


def test_doctor_finds_this_installation_sound(tmp_path: Path) -> None:
    text = succeed("doctor", cache=tmp_path)
    assert "ok      classes: all import" in text
    assert "BROKEN" not in text
    assert all(f["ok"] for f in json.loads(succeed("doctor", "--json", cache=tmp_path)))


def test_a_record_keeps_to_its_schema(cache: Path, records: list[dict[str, Any]]) -> None:
    import jsonschema

    schema = json.loads(succeed("schema", "record", cache=cache))
    jsonschema.Draft202012Validator.check_schema(schema)
    for values in records:
        jsonschema.validate(values, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, "surprise": 1}, schema)
    asked = json.loads(succeed("schema", "request", cache=cache))
    jsonschema.validate(records[0]["request"], asked)


@pytest.mark.core
@pytest.mark.parametrize("command", [["schema"], ["list"], ["describe", "singmix"]], ids=" ".join)
def test_a_reader_who_leaves_early_hears_no_complaint(tmp_path: Path, command: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "harness", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, PYTHONUNBUFFERED="1"),
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 1)

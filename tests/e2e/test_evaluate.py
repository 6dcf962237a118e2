"""`harness evaluate`: one command in, one record out, the same one every time."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commandline import (
    PRIVACY,
    SIZES,
    TINY,
    UNET,
    VICTIM,
    complaint,
    complaints,
    files,
    harness,
    record,
    scores,
    succeed,
)

from harness import evaluate
from harness.api import Progress
from harness.running.run import Observer
from harness.store.record import parse_record

LINEAR = (*TINY, "--attack", "linear[steps=5]")
SMALL: dict[str, Any] = {
    "attack": "identity",
    "victim": "mlp[epochs=1,width=8]",
    "learner": "classmeans",
    "metrics": "snr_db,mse",
    "only": "privacy",
    "private_size": 40,
    "public_size": 120,
    "test_size": 60,
    "threads": 1,
}
"""What `PRIVACY` asks for, as arguments of `evaluate`."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of this file: what they share is run once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def report(cache: Path) -> str:
    """What the first run of the default job prints into a pipe."""
    return succeed(*UNET, cache=cache)


@pytest.fixture(scope="module")
def first(cache: Path, report: str) -> dict[str, Any]:
    """The record of the default job in miniature."""
    return record(*UNET, cache=cache)


def test_a_report_has_scores_a_verdict_and_places_that_exist(report: str) -> None:
    assert report.startswith(
        "singmix[alpha=0.65, calibrate=private, first=any, fixed_points=yes, noise=sphere, "
    )
    assert re.search(r"^metric +unet +best null +gain over it +worst image +identity", report, re.M)
    assert re.search(r"^snr_db ↑ +-?[\d.]+ ± [\d.]+ ", report, re.M)
    assert re.search(
        r"^best learner classmeans: accuracy 0\.\d+ .*; unprotected 0\.\d+ \(.*\) by classmeans; "
        r"chance 0\.\d+(; the strongest learner here found nothing)?$",
        report,
        re.M,
    )
    assert re.search(r"best null \(.*\d dB\)", report)
    places = re.findall(r"^(record|gallery) +(\S+)$", report, re.M)
    assert [name for name, _ in places] == ["record", "gallery"]
    assert all(Path(path).stat().st_size > 100 for _, path in places)


def test_a_pipe_gets_no_decoration(report: str) -> None:
    assert "\x1b" not in report
    assert "\r" not in report
    assert not re.search(r"[━█▏]", report)


def test_json_is_one_line_with_a_record_whose_id_is_its_own(cache: Path, report: str) -> None:
    out = succeed(*UNET, "--json", cache=cache)
    assert out.count("\n") == 1
    parsed = parse_record(json.loads(out))
    assert parsed.fingerprint() == parsed.id
    assert parsed.id in report
    assert (cache / "records" / f"{parsed.id}.json").read_text() == out


def test_a_second_run_repeats_nothing(cache: Path, first: dict[str, Any]) -> None:
    before = files(cache)
    started = time.monotonic()
    again = succeed(*UNET, "--json", cache=cache)
    assert json.loads(again) == first
    assert files(cache) == before
    assert time.monotonic() - started < sum(first["timing"].values())


def took_part(made: dict[str, Any]) -> set[str]:
    """Stages that ran for a record; what attacks and learners took is told whoever ran them."""
    told = ("attack ", "prepare ", "learn ")
    return {name for name in made["timing"] if not name.startswith(told)}


def test_a_lost_record_is_put_together_from_what_is_stored(
    tmp_path: Path, cache: Path, first: dict[str, Any]
) -> None:
    """As after a kill at the very end."""
    copy = shutil.copytree(cache, tmp_path / "copy")
    shutil.rmtree(copy / "cells")
    before = files(copy / "artifacts")
    again = record(*UNET, cache=copy)
    assert again["id"] == first["id"]
    assert took_part(again) <= {"picture"}
    assert files(copy / "artifacts") == before


def test_a_file_says_what_options_say_and_options_win(
    tmp_path: Path, cache: Path, first: dict[str, Any]
) -> None:
    config = tmp_path / "cell.toml"
    config.write_text(
        'attack = "unet[base=4,epochs=1]"\n'
        'victim = "mlp[epochs=1,width=8]"\nlearner = "classmeans"\n'
        'metrics = "snr_db,mse"\n'
        "private_size = 40\npublic_size = 120\ntest_size = 60\nthreads = 1\nseed = 9\n"
    )
    asked = record("evaluate", "--config", str(config), "--seed", "0", cache=cache)
    assert asked["id"] == first["id"]


@pytest.mark.parametrize(("half", "absent"), [("privacy", "utility"), ("utility", "privacy")])
def test_one_half_alone_scores_as_in_the_whole(
    cache: Path, first: dict[str, Any], half: str, absent: str
) -> None:
    alone = record(*UNET, "--only", half, cache=cache)
    assert alone[half] == first[half]
    assert not alone[absent]
    assert took_part(alone) <= {"picture"}


def test_a_dry_run_says_what_is_stored_and_runs_nothing(cache: Path, first: dict[str, Any]) -> None:
    before = files(cache)
    kept = json.loads(succeed(*UNET, "--dry-run", "--json", cache=cache))
    assert set(kept["stages"].values()) == {"stored"}
    other = json.loads(succeed(*UNET, "--seed", "8", "--dry-run", "--json", cache=cache))
    assert set(other["stages"].values()) == {"to do"}
    forced = json.loads(succeed(*UNET, "--force", "attack", "--dry-run", "--json", cache=cache))
    assert [name for name, state in forced["stages"].items() if state == "to do"] == [
        "attack",
        "judge",
    ]
    assert files(cache) == before
    assert "channels       encoder, encodings" in succeed(*UNET, "--dry-run", cache=cache)


def test_a_dry_run_of_the_utility_alone_has_stages_and_no_attack(
    cache: Path, first: dict[str, Any]
) -> None:
    asked = (*UNET, "--only", "utility", "--dry-run", "--json")
    foreseen = json.loads(succeed(*asked, cache=cache))
    assert foreseen["stages"] == {"load": "stored", "learn classmeans": "stored"}
    assert foreseen["cell"] == first["defense"][0]["name"]
    assert not {"status", "reason", "channels", "companions"} & set(foreseen)


def test_a_dry_run_knows_the_owners_key(tmp_path: Path, cache: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef")
    foreseen = succeed(*UNET, "--owner-key", str(key), "--dry-run", "--json", cache=cache)
    assert json.loads(foreseen)["stages"]["release"] == "to do"


def test_a_forced_stage_runs_anew_once_and_gives_the_same(
    cache: Path, first: dict[str, Any]
) -> None:
    before = files(cache / "artifacts")
    forced = record(*UNET, "--force", "attack", cache=cache)
    assert (forced["id"], scores(forced)) == (first["id"], scores(first))
    after = files(cache / "artifacts")
    changed = {name.split("/")[0] for name in after if after[name] != before[name]}
    assert changed == {"attack", "judge"}


def test_a_forced_stage_is_not_made_twice(tmp_path: Path) -> None:
    """Stages that several others read are remade for the first of them."""
    made: list[str] = []

    class Counting(Observer):
        @contextmanager
        def stage(self, name: str) -> Iterator[Progress]:
            made.append(name)
            with super().stage(name) as progress:
                yield progress

    evaluate(observer=Counting(), cache=tmp_path, force="load", **{**SMALL, "only": "utility"})
    assert len(made) == len(set(made))
    assert {"load", "learn classmeans"} <= set(made)


def test_another_cache_gives_the_same_to_the_bit(tmp_path: Path, first: dict[str, Any]) -> None:
    elsewhere = record(*UNET, cache=tmp_path)
    assert (elsewhere["id"], scores(elsewhere)) == (first["id"], scores(first))
    hashes = [
        {name: kept["sha256"] for name, kept in values["artifacts"].items()}
        for values in (elsewhere, first)
    ]
    assert hashes[0] == hashes[1]


def test_python_gives_the_record_that_the_command_gives(tmp_path: Path, cache: Path) -> None:
    called = evaluate(cache=tmp_path, **SMALL)
    asked = record(*PRIVACY, cache=cache)
    assert called.id == asked["id"]
    assert {name: score.model_dump(mode="json") for name, score in called.privacy.items()} == asked[
        "privacy"
    ]


def test_another_seed_gives_other_numbers(cache: Path) -> None:
    one, other = (record(*PRIVACY, "--seed", seed, cache=cache) for seed in ("0", "1"))
    assert one["id"] != other["id"]
    assert one["privacy"]["snr_db"]["mean"] != other["privacy"]["snr_db"]["mean"]


def test_an_owners_key_changes_the_secrets_and_never_appears(tmp_path: Path, cache: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"not to be seen by anyone")
    keyed = record(*PRIVACY, "--owner-key", str(key), cache=cache)
    plain = record(*PRIVACY, cache=cache)
    assert keyed["artifacts"]["load"] == plain["artifacts"]["load"]
    assert keyed["artifacts"]["release"]["sha256"] != plain["artifacts"]["release"]["sha256"]
    assert keyed["seeds"]["owner_key"].startswith("sha256:")
    assert not any(
        b"not to be seen" in path.read_bytes() for path in cache.rglob("*") if path.is_file()
    )


def test_only_the_metrics_that_were_asked_for_are_scored(cache: Path) -> None:
    values = record(*PRIVACY, "--metrics", "psnr", cache=cache)["privacy"]
    assert [name for name, score in values.items() if score["mean"] is not None] == ["psnr"]
    assert values["mse"]["unavailable"] == "not asked for"


def test_a_cell_that_cannot_be_is_a_record_and_exits_1(cache: Path) -> None:
    done = harness(*LINEAR, "--threat-model", "fl-realistic", "--json", cache=cache)
    assert done.returncode == 1
    values = json.loads(done.stdout)
    assert values["status"] == "not_applicable"
    assert values["error"].startswith("ChannelNotGranted: 'linear' needs encodings")
    assert (cache / "records" / f"{values['id']}.json").exists()


def test_an_attack_out_of_time_is_a_record_and_exits_1(tmp_path: Path) -> None:
    slow = (*SIZES, *VICTIM, "--only", "privacy", "--attack", "linear[steps=100000]")
    done = harness("evaluate", *slow, "--seconds", "0.5", "--json", cache=tmp_path)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["status"] == "timeout"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_stage_that_is_none_is_refused(cache: Path) -> None:
    done = harness(*UNET, "--force", "atack", cache=cache)
    assert "'atack' is not a stage. Did you mean 'attack'?" in complaint(done, 2)


def stages(stderr: str) -> list[str]:
    """What was said of stages, without the times."""
    assert complaints(stderr) == []
    return [line.partition(" s  ")[2] for line in stderr.splitlines()]


def test_a_log_has_a_line_for_each_stage(tmp_path: Path) -> None:
    """Where stderr is no terminal; the report alone goes to stdout."""
    first = harness(*PRIVACY, cache=tmp_path)
    begun = stages(first.stderr)
    assert begun[:4] == ["load", "release", "judge nulls", "attack identity"]
    assert len(set(begun)) == len(begun)
    shutil.rmtree(tmp_path / "cells")
    assert "attack identity: stored" in stages(harness(*PRIVACY, cache=tmp_path).stderr)
    for silent in ("--quiet", "--json"):
        shutil.rmtree(tmp_path / "cells")
        assert harness(*PRIVACY, silent, cache=tmp_path).stderr == ""


def test_a_preparation_that_was_deleted_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    """What an attack learned, and shares, is in its record; what is cached of it is not needed."""
    prior = (*TINY, "--only", "privacy", "--attack", "innerproduct", "--threat-model", "candidates")
    before = record(*prior, cache=tmp_path)
    assert any(name.startswith("prepare ") for name in before["artifacts"])
    shutil.rmtree(tmp_path / "artifacts" / "prepare")
    shutil.rmtree(tmp_path / "cells")
    again = record(*prior, cache=tmp_path)
    assert (again["id"], again["artifacts"]) == (before["id"], before["artifacts"])
    assert not (tmp_path / "artifacts" / "prepare").exists()

"""Whoever scores by what follows from the seed, or is on a disk, is found out; its twin is not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.submissions.hidden import SUSPICIOUS

HERE = Path(__file__).parent
SMALL = {
    "preset": "standard",
    "private_size": 24,
    "public_size": 200,
    "test_size": 40,
    "metrics": "snr_db",
    "threads": 1,
    "victim": "mlp",
    "ceiling": False,
}
LEAKS = {**SMALL, "only": "privacy"}
NOISE = "noise[kind=gaussian,alpha=0.5,scale=1]"
LEARNS = {
    **SMALL,
    "only": "utility",
    "attack": "linear",
    "learner": "two",
    "private_size": 200,
    "test_size": 200,
    "victim": "mlp[epochs=2]",
}
CELLS = {
    "recomputes the splits": {**LEAKS, "defense": "mixup[k=2]", "attack": "splits"},
    "derives the key": {**LEAKS, "defense": NOISE, "attack": "key"},
    "looks images up": {**LEAKS, "defense": NOISE, "attack": "lookup"},
    "releases public images": {**LEAKS, "defense": "publishes", "attack": "linear"},
    "answers from labels": {**LEARNS, "defense": "answers"},
    "honest of mixtures": {**LEAKS, "defense": "mixup[k=2]", "attack": "lmmse"},
    "honest of noise": {**LEAKS, "defense": NOISE, "attack": "lmmse"},
    "honest learning": {**LEARNS, "defense": NOISE},
}
PLAINLY = ["recomputes the splits"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """What becomes of every cell, with the cheats installed as a stranger's package."""
    work = tmp_path_factory.mktemp("rows")
    site = work / "site"
    info = site / "cheats-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(HERE / "cheats.py", site)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cheats\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[harness.plugins]\ncheats = cheats\n")
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "HARNESS_CACHE": str(work / "cache")}
    command = [sys.executable, HERE / "rows.py", json.dumps(CELLS), json.dumps(PLAINLY)]
    subprocess.run(command, cwd=work, env=environment, check=True)
    return json.loads((work / "rows.json").read_text())


@pytest.mark.parametrize("honest", [name for name in CELLS if name.startswith("honest")])
def test_an_honest_row_is_borne_out(honest, rows):
    found = rows[honest]
    assert found["status"] == "ok", found["error"]
    assert not SUSPICIOUS & set(found["flags"])
    assert found["hidden"]["outcome"] == "ok"
    assert "borne out" in found["hidden"]["notes"][-1]


def test_splits_of_the_public_seed_are_worth_nothing_under_another(rows):
    found = rows["recomputes the splits"]
    assert found["mean"] > 100
    assert found["again"]["outcome"] == "ok"  # a rerun under the same seed finds nothing
    assert found["hidden"]["outcome"] == "differs"
    assert "the gain in snr_db falls" in found["hidden"]["notes"][-1]


def test_nor_is_the_key_that_follows_from_it(rows):
    found = rows["derives the key"]
    assert found["mean"] > 60
    assert "beyond_noise" in found["flags"]
    assert "the gain in snr_db falls" in found["hidden"]["notes"][-1]


def test_an_image_that_noise_hides_is_not_found_by_an_honest_attack(rows):
    """Other images of a dataset that is on the disk do not help: it is flagged as it is."""
    found = rows["looks images up"]
    assert found["mean"] > 60
    assert "beyond_noise" in found["flags"]
    assert found["hidden"]["outcome"] == "ok"


def test_a_defense_that_knows_the_answers_is_flagged_at_once(rows):
    assert {"beyond_unprotected", "inference_outdoes"} <= set(rows["answers from labels"]["flags"])


def test_a_release_of_public_images_is_found_in_its_rows(rows):
    found = rows["releases public images"]["hidden"]
    assert found["outcome"] == "differs"
    assert "24 of 24 rows are public images" in found["notes"][-1]


def test_a_hidden_rerun_says_on_which_images_and_tells_no_secret(rows):
    for found in rows.values():
        note = found["hidden"]["notes"][-1]
        assert "24 of 24 private images outside" in note or "200 of 200 private" in note
        assert "hidden rerun under " in note

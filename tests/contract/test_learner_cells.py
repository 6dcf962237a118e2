"""Learners in a cell: the best of those that learn counts, and none sees what it should not."""

import json
import shutil
from pathlib import Path

import pytest
from strangers import Machine, install

ROGUES = Path(__file__).with_name("rogues")
CELL = (
    *("evaluate", "--threads", "1", "--metrics", "snr_db", "--only", "utility", "--json"),
    *("--private-size", "30", "--public-size", "40", "--test-size", "40", "--dataset", "stripes"),
    *("--defense", "singmix[tau=1]", "--rounds", "2", "--victim", "mlp"),
)
FAULTS = {
    "raises-later": "RuntimeError: no answer today",
    "answers-nan": "ValueError: logits hold NaN or infinite values",
    "answers-short": "ValueError: logits are [40, ",
    "answers-all": "ValueError: logits are [",
    "forgets": "TypeError: learn must return a Classifier, not NoneType",
    "asks-far": "the learner asked for a piece that there is not",
    "asks-nonsense": "the learner wrote into the pipe that its process answers by",
}
FRAME = {
    *("learner", "law", "victim", "release", "mean", "std", "low", "high", "shape", "classes"),
    *("key", "device", "seconds", "megabytes", "threads", "precision"),
}
"""What a lesson may say besides tensors: whatever is new here has to be thought about."""


@pytest.fixture(scope="module")
def ran(example, tmp_path_factory):
    """Cells of all these learners, of one of them, and of one that fails."""
    site = tmp_path_factory.mktemp("rogues")
    shutil.copytree(ROGUES, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    install(site, "learners", "from rogue_learners import harness_learners")
    machine = Machine(tmp_path_factory.mktemp("cache"), (example, site))
    asked = {
        "everyone": ("--learner", "everyone", "--repeats", "3"),
        "alone": ("--learner", "remembers"),
        "failing": ("--learner", "forgets"),
    }
    commands = [[*CELL, *options] for options in asked.values()]
    return dict(zip(asked, machine.series(commands), strict=True))


def test_those_that_learn_count_and_the_others_are_left_out_with_the_reason(ran):
    record = ran["everyone"].json
    assert ran["everyone"].code == 0
    found = record["utility"]
    assert list(found["accuracies"]) == ["remembers"] == list(found["validation"])
    assert found["inference"] == found["reference_inference"] == "remembers"
    assert found["accuracy"] == found["accuracies"]["remembers"]["mean"]
    assert found["left_out"].keys() == {*FAULTS, "declines", "pries"}
    for name, reason in FAULTS.items():
        assert found["left_out"][name].startswith(reason)
    assert found["left_out"]["declines"] == "this is no release of mine"
    flagged = {f["message"].split(":")[0] for f in record["flags"] if f["name"] == "learner_failed"}
    failed = {*FAULTS, "pries"}
    assert flagged == failed | {f"{name} on unprotected images" for name in failed}
    assert found["reference_left_out"].keys() == {*failed, "declines"}, "declining is no failure"
    assert set(record["learners"]) == {*FAULTS, "remembers", "declines", "pries"}


def test_one_that_varies_is_trained_as_often_as_asked_and_the_interval_knows(ran):
    several, once = (ran[name].json["utility"] for name in ("everyone", "alone"))
    assert len(several["accuracies"]["remembers"]["trainings"]) == 3
    assert len(once["accuracies"]["remembers"]["trainings"]) == 1
    assert once["accuracy"] == several["accuracies"]["remembers"]["trainings"][0]


def test_half_of_the_test_images_choose_and_the_other_half_is_reported(ran):
    found = ran["alone"].json["utility"]
    assert found["n"] == 20
    assert found["validation"]["remembers"] * 20 == pytest.approx(
        round(found["validation"]["remembers"] * 20)
    )


def test_without_any_learner_the_cell_fails(ran):
    assert ran["failing"].code == 1
    assert ran["failing"].json["error"] == FAULTS["forgets"]


def test_a_learner_finds_the_release_and_public_images_and_nothing_else(ran):
    """Neither the test images nor any hard label, nor anything of the private images."""
    left_out = ran["everyone"].json["utility"]["left_out"]["pries"]
    seen = json.loads(left_out.removeprefix("RuntimeError: "))
    files = {"public.safetensors", "lesson.json"}
    assert set(seen["beside"]) == {f"view/{name}" for name in files}
    assert set(seen["frame"]) == FRAME
    assert seen["holds"] == sorted(
        (
            *("release", "public", "law", "scale", "shape", "classes"),
            *("device", "rng", "victim", "precision"),
            "statistics",  # None here: encodings left
        )
    )
    assert seen["public"] == [0], "public images come without names"


def test_for_utility_alone_no_round_is_stored(ran):
    record = ran["everyone"].json
    assert record["splits"]["private"] == 30
    assert set(record["artifacts"]) == {"load"}
    assert record["timing"]["rounds for learners"] >= 0

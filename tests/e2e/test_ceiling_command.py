"""`harness ceiling`, and evaluations that hold what was reached against one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import SIZES, complaint, harness, record, succeed

NOISY = "singmix[tau=1e-2,noise=gaussian,calibrate=public]"
SMALL = ("--private-size", "60", "--public-size", "300", "--threads", "1", "--preset", "quick")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_grid_by_rounds_comes_as_json(cache: Path) -> None:
    grid = NOISY.replace("1e-2", "1e-2|1e-4")
    rounds = ("--rounds", "1", "--rounds", "3")
    found = json.loads(
        succeed("ceiling", *SMALL, "--defense", grid, *rounds, "--json", cache=cache)
    )
    assert len(found) == 2 * 2 * 2
    pooled = {
        (each["defense"], each["rounds"]): each["quantities"]["pooled_snr_db"]["value"]
        for each in found
        if each["ceiling"] == "exchangeable"
    }
    loud, quiet = (NOISY.replace("1e-2", tau) for tau in ("1e-2", "1e-4"))
    assert pooled[loud, 3] > pooled[loud, 1] > pooled[quiet, 1]
    assert pooled[quiet, 3] > pooled[quiet, 1]
    mus = [each["quantities"]["mu"]["value"] for each in found if each["ceiling"] == "dp"]
    assert mus == [pytest.approx(m) for m in (mus[0], mus[0] * 3**0.5, mus[2], mus[2] * 3**0.5)]


def test_people_read_numbers_assumptions_and_reasons(cache: Path) -> None:
    said = succeed("ceiling", *SMALL, "--defense", NOISY, cache=cache)
    assert "pooled_snr_db" in said
    assert "the attacker's prior is the population" in said
    assert "not bounded: the best of several" in said
    assert "replace one" in said
    sphere = succeed("ceiling", *SMALL, "--defense", "singmix", cache=cache)
    assert "mutually singular" in sphere
    pruned = succeed("ceiling", *SMALL, "--defense", "gradprune", cache=cache)
    assert "what is left of a gradient leaves as it is" in pruned


REFUSED = {
    "--ceiling dp[delta=0]": "delta='0': Input should be greater than 0",
    "--ceiling dp[delta=-1]": "Input should be greater than 0",
    "--ceiling dp[epsilon=1]": "has no option 'epsilon'",
    "--ceiling exchangable": "Unknown ceiling 'exchangable'. Did you mean 'exchangeable'?",
    "--ceiling dp --defense mixup": "'dp' proves nothing of mixup: no noise is added",
    "--ceiling dp --defense singmix[noise=gaussian]": "give radius=… or calibrate=public",
    "--ceiling exchangeable --defense mixcon": "no noise covers the features that leave",
    "--ceiling dp --defense gradnoise": "without a clipping norm",
    "--rounds 0": "0 is not in the range",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_proves_nothing_is_refused_in_words(cache: Path, written: str) -> None:
    done = harness("ceiling", *SMALL, *written.split(), cache=cache)
    assert done.returncode == 2
    assert REFUSED[written] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_record_holds_what_was_reached_against_the_ceiling(cache: Path) -> None:
    cell = ("evaluate", *SIZES, "--public-size", "2500", "--only", "privacy", "--metrics", "snr_db")
    asked = (*cell, "--attack", "lmmse", "--defense", NOISY)
    values = record(*asked, "--ceiling", cache=cache)
    proof = values["ceilings"]["exchangeable"]
    lmmse = proof["reached"]["lmmse"]
    assert lmmse["bound"] in proof["quantities"]
    assert lmmse["value"] < proof["quantities"][lmmse["bound"]]["interval"][1]
    assert not [flag for flag in values["flags"] if flag["name"] == "above_ceiling"]
    assert values["ceilings"]["dp"]["quantities"]["epsilon"]["value"] > 0
    assert values["ceiling_plugins"]["dp"]["config"]["delta"] == 1e-5
    assert record(*asked, cache=cache)["ceilings"] == {}  # a quick look does without


def test_one_complaint_is_all(cache: Path) -> None:
    done = harness("ceiling", *SMALL, "--ceiling", "dp", "--defense", "none", cache=cache)
    assert "'dp' proves nothing of none" in complaint(done, 2)

"""A small run of `benchmarks/nulls.py`: what holds nothing gains nothing, and .5 dB are found."""

import json
import sys
from pathlib import Path

import pytest
from scipy.stats import binom

from harness.api import AssetFolder, Config
from harness.running.load import SplitSizes
from harness_plugins.datasets import fashion_mini
from harness_plugins.datasets.fashion_mini.dataset import FashionMini

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import nulls

ROOT = Path(__file__).parents[2]

REPETITIONS = 10
SURE = 0.01
"""How rarely a share that is as it may be just so would fail here."""


@pytest.fixture(scope="module")
def shares():
    folder = Path(fashion_mini.__file__).parent / "images"
    data = FashionMini(Config()).load(AssetFolder({"fashion-mini": folder}))
    sizes = SplitSizes(private=100, public=2000, test=1000)
    return list(nulls.shares("fashion-mini", data, sizes, REPETITIONS))


def test_rows_of_blind_attacks_gain_nothing(shares):
    rows = [share for share in shares if share.what.startswith("nothing, row")]
    assert len(rows) == 3  # of attacks that name targets, of others, of both
    most = binom.ppf(1 - SURE, REPETITIONS, nulls.FALSE)
    assert all(row.hits <= most for row in rows), [row.line for row in rows]


def test_half_a_decibel_is_found(shares):
    rows = [share for share in shares if share.what.startswith("planted in")]
    assert len(rows) == 4
    least = binom.ppf(SURE, REPETITIONS, nulls.FOUND)
    assert all(row.hits >= least for row in rows), [row.line for row in rows]


def test_a_share_that_is_too_high_or_low_fails():
    def held(what, hits):
        return nulls.Share("d", what, hits, 200).held

    assert held("nothing, row all", 10)
    assert not held("nothing, row all", 11)
    assert held("planted in it, row all", 180)
    assert not held("planted in it, row all", 179)


def test_the_page_has_what_two_hundred_repetitions_found():
    kept = json.loads((ROOT / "benchmarks" / "nulls.json").read_text(encoding="utf-8"))
    found = [nulls.Share(**each) for each in kept]
    assert {share.repetitions for share in found} == {200}
    assert all(share.held for share in found)
    page = (ROOT / "docs" / "results" / "nulls.md").read_text(encoding="utf-8")
    assert nulls.table(found) in page
    alone = [share for share in found if share.what.startswith("nothing, alone")]
    most = max(share.hits / share.repetitions for share in alone)
    assert f"{len(alone) // 2} single attacks that hold nothing, at most {most:.1%}" in page

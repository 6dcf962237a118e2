"""The options of private releases are those that public images speak for."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.defenses.dpmix import DpmixConfig
from harness_plugins.defenses.dpmix.mixing import Dpmix
from harness_plugins.privacy.gaussian import mu_of

TOLD = Path(__file__).parents[2] / "benchmarks" / "private_options.json"


@pytest.fixture(scope="module")
def regrets():
    """By study and options, what a pool of public images loses by them at most, over budgets."""
    worst = defaultdict(lambda: defaultdict(list))
    for pool in json.loads(TOLD.read_bytes()).values():
        for study in ("dpmeans", "dpmix"):
            means = defaultdict(list)
            for name, (accuracy, _) in pool[study].items():
                means[name.partition(",")[2]].append(accuracy)
            of = {name: math.fsum(found) / len(found) for name, found in means.items()}
            for name, mean in of.items():
                worst[study][name].append(max(of.values()) - mean)
    return {study: {n: max(v) for n, v in found.items()} for study, found in worst.items()}


def test_how_far_public_images_whiten_costs_least_on_the_worse_of_both_pools(regrets):
    config = DpmeansConfig()
    told = regrets["dpmeans"]
    assert len(told) == 15
    assert told[f"whiten={config.whiten:g},clip={config.clip:g}"] == min(told.values())
    assert min(told.values()) < 0.01
    assert told["whiten=1,clip=0.5"] > 0.15


def test_how_many_images_a_row_has_is_best_on_both_pools(regrets):
    told = regrets["dpmix"]
    assert sorted(told, key=told.get)[0] == "m=0.5"
    assert told["m=0.5"] == 0
    usual = Dpmix(DpmixConfig(epsilon=8))._mixed(3000)
    assert usual == round(0.5 * mu_of(8, 1e-5) * math.sqrt(3000))

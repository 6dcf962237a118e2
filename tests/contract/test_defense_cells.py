"""Every built-in defense as a user meets it: one small cell each, alone and stacked."""

from importlib.util import find_spec

import pytest
from strangers import SMALL, Machine

FASHION = (*SMALL, "--dataset", "fashion-mini", "--attack", "identity")
UTILITY = ("--only", "utility", "--private-size", "60")


def cell(defense, *options):
    return [*FASHION, "--defense", defense, *options]


CELLS = {
    "mixup": cell("mixup[k=3]", "--rounds", "2"),
    "instahide inside": cell("instahide[k=3,infer=2]", *UTILITY, "--rounds", "2"),
    "instahide cross": cell("instahide[scheme=cross,k=4,augment=crop-flip]"),
    "noise": cell("noise[kind=gaussian,alpha=0.3]"),
    "singmix": cell("singmix", "--rounds", "2"),
    "mixcon": cell("mixcon[layer=hidden2]", *UTILITY),
    "mixcon, features": cell("mixcon[layer=hidden2]+mixup[k=2]", "--attack", "nearest"),
    "unicon": cell("unicon", *UTILITY),
    "gradprune": cell("gradprune[p=0.9]+instahide[k=4]", "--attack", "nearest"),
    "gradnoise": cell("gradnoise[scale=0.1]", *UTILITY),
    "dpsgd": cell("dpsgd[noise_multiplier=1]", *UTILITY),
    "synthetic": cell("mixup[k=2]", "--dataset", "synthetic-mixcon"),
}
REFUSED = {
    "instahide[scheme=cross,k=1]": "k",
    "mixup[k=1]": "greater than or equal to 2",
    "mixup[k=4,max_weight=0.2]": "max_weight",
    "instahide[k=4,max_weight=0.2]": "max_weight",
    "mixcon[beta=-1]": "greater than or equal to 0",
    "gradprune[p=1]": "less than 1",
    "gradprune[p=-0.1]": "greater than or equal to 0",
    "dpsgd[epsilon=0]": "greater than 0",
    "dpsgd[epsilon=1,noise_multiplier=1]": "noise_multiplier",
    "noise[alpha=1]": "less than 1",
    "mixup+instahide": "at most one encoding defense; this one has mixup and instahide",
    "dpsgd+gradprune": "'dpsgd' holds only where it trains alone",
    "mixcon+dpsgd": "'dpsgd' holds only where it trains alone",
}


if find_spec("opacus") is None:
    del CELLS["dpsgd"]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    ran = Machine(tmp_path_factory.mktemp("cache")).series(list(CELLS.values()))
    outcomes = dict(zip(CELLS, ran, strict=True))
    for name, outcome in outcomes.items():
        assert outcome.code == 0, f"{name}: {outcome}"
    return {name: outcome.json for name, outcome in outcomes.items()}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("cache"))
    ran = machine.series([[*FASHION, "--defense", stack] for stack in REFUSED])
    assert not list(machine.cache.glob("artifacts/*"))
    return dict(zip(REFUSED, ran, strict=True))


@pytest.mark.parametrize("stack", REFUSED)
def test_nonsense_is_refused_before_any_work(refusals, stack):
    outcome = refusals[stack]
    assert (outcome.code, outcome.out) == (2, "")
    assert REFUSED[stack] in outcome.err


def test_what_cannot_be_trained_is_refused_before_anything_is(tmp_path):
    machine = Machine(tmp_path)
    commands = [
        cell("mixcon[layer=nosuch]", *UTILITY),
        cell("dpsgd", *UTILITY, "--victim", "cnn"),
        cell("none", "--space", "efficientnet-lite0"),
        cell("none", "--dataset", "synthetic-gaussian", "--space", "resnet18"),
    ]
    layer, batchnorm, weights, vectors = machine.series(commands)
    assert [ran.code for ran in (layer, batchnorm, weights, vectors)] == [2, 2, 2, 2]
    assert "no block 'nosuch' to cut after" in layer.err
    told = "cnn[norm=group]" if "dpsgd" in CELLS else "pip install 'encoding-harness[dp]'"
    assert told in batchnorm.err
    assert "harness assets fetch efficientnet-lite0" in weights.err
    assert "harness assets fetch resnet18-imagenet" in vectors.err
    assert not list(machine.cache.glob("artifacts/train/*"))


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_is_a_record(cells, name):
    assert cells[name]["status"] == "ok"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mixup", "encodings"),
        ("mixcon, features", "features"),
        ("gradprune", "features"),
    ],
)
def test_what_leaves_is_what_the_stack_guards_and_the_attack_reads(cells, name, kind):
    assert cells[name]["release_kind"] == kind


def test_signs_hidden_are_judged_on_absolute_values_too(cells):
    assert set(cells["instahide cross"]["privacy"]) >= {"snr_db", "snr_db_abs"}
    assert "snr_db_abs" not in cells["mixup"]["privacy"]


def test_instahides_own_inference_is_a_learner_beside_the_others(cells):
    found = cells["instahide inside"]["utility"]
    assert {"encoded", "network", "ridge"} <= set(found["accuracies"])
    assert "encoded" not in found["left_out"]


def test_a_defense_may_change_the_recipe_and_the_record_says_so(cells):
    assert cells["mixcon"]["victim"]["resolved"] == {"cut": "hidden2"}
    assert cells["unicon"]["victim"]["resolved"] == {}


def test_calibrated_parameters_are_in_the_record(cells):
    (used,) = cells["noise"]["defense"]
    assert used["resolved"]["scale"] > 0


def test_separability_is_measured_of_every_victim(cells):
    measures = cells["unicon"]["measures"]
    assert 0 <= measures["separability.within.min"] <= measures["separability.within.max"] <= 2


def test_vectors_are_no_images(cells):
    privacy = cells["synthetic"]["privacy"]
    assert privacy["snr_db"]["n"] == 12
    assert "not asked for" in privacy["ssim"]["unavailable"]


@pytest.mark.skipif("dpsgd" not in CELLS, reason="opacus is not installed")
def test_what_privacy_cost_is_in_the_record(cells):
    measures = cells["dpsgd"]["measures"]
    assert measures["dpsgd.epsilon"] > 0
    assert measures["dpsgd.noise_multiplier"] == 1

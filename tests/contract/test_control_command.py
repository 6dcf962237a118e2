"""`harness control`: attacks that break what they must, and strangers' attacks that do not."""

import json

import pytest
from strangers import Machine, install

SIZES = {"private_size": 12, "public_size": 40, "test_size": 20, "metrics": "snr_db,mse"}
STRANGERS = f"""
from harness.api import AttackSpec, Channel, Control, LearnerSpec, hookimpl
from harness_plugins.learners.centroid_filter import CentroidFilterConfig

SIZES = {SIZES!r}

def on_nothing(metric, at_least, dataset="fashion-mini", **options):
    return Control("none", dataset, metric, at_least, options=SIZES | options)

def attack(name, *controls, factory="harness_plugins.attacks.identity:Identity"):
    needs = (frozenset({{Channel.ENCODINGS}}),)
    return AttackSpec(name=name, version="1", summary="s", reference="r", factory=factory,
                      needs=needs, controls=controls)

@hookimpl
def harness_attacks():
    return [
        attack(
            "weak",
            on_nothing("snr_db", 25.0),
            on_nothing("mse", 1e-3),
            on_nothing("snr_db", 200.0),
            on_nothing("mse", 1e-9),
            on_nothing("snr_bd", 25.0),
            on_nothing("identification.top1", 0.5),
        ),
        attack("blind", on_nothing("snr_db", 25.0, threat_model="fl-realistic")),
        attack("broken", on_nothing("snr_db", 25.0), factory="gone:X"),
        attack("homeless", on_nothing("snr_db", 25.0, dataset="cifar10")),
        attack("misasked", on_nothing("snr_db", 25.0, colour="red")),
        attack("idle"),
    ]

KNOWN = "synthetic-gaussian[d=16,n=600,n_test=200,classes=2,apart=2]"
FEW = dict(private_size=300, public_size=300, test_size=200)

@hookimpl
def harness_learners():
    return [
        LearnerSpec(
            name="mean-filter", version="1", summary="s", reference="r", varies=False,
            factory="harness_plugins.learners.centroid_filter.learner:CentroidFilter",
            config=CentroidFilterConfig,
            controls=(
                Control("none", KNOWN, "accuracy", 0.75, FEW),
                Control("none", KNOWN, "share", 0.8, FEW),
                Control("none", KNOWN, "share", 1.5, FEW),
                Control("none", "fashion-mini", "share", 0.1, FEW),
            ),
        )
    ]
"""
HERE = ("--threads", "1", "--device", "cpu")
ATTACKS = ("identity", "weak", "blind", "broken", "homeless", "misasked")
RUNS = {
    **{name: ["control", name, *HERE, "--json"] for name in ATTACKS},
    "table": ["control", "identity", "weak", "blind", *HERE],
    "again": ["control", "identity", *HERE, "--json"],
    "learner": ["control", "--kind", "learners", "mean-filter[pool=1]", *HERE, "--json"],
}
REFUSED = {
    "idel": "Unknown attack 'idel'. Did you mean 'idle'?",
    "idle": "'idle' declares no control",
    "identity idle": "'idle' declares no control",
    "identity[radius=1]": "'identity' has no option 'radius'.",
    "identity --seed -1": "seed: Input should be greater than or equal to 0",
    "identity --all": "one of the two",
    "": "one of the two",
    "--kind learners standard": "'standard' declares no control: nothing says what it must learn",
    "--kind learners mean-filler": "Unknown learner 'mean-filler'. Did you mean 'mean-filter'?",
    "--kind learners --board cifar10-v2": "which attacks and learners it has: no --kind",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    install(site, "stubborn", STRANGERS)
    return Machine(tmp_path_factory.mktemp("cache"), (site,))


@pytest.fixture(scope="module")
def ran(here):
    return dict(zip(RUNS, here.series(list(RUNS.values())), strict=True))


def report(outcome):
    (found,) = outcome.json["reports"]
    return found


def test_a_built_in_attack_passes_and_says_which_it_is(ran):
    assert (ran["identity"].code, ran["identity"].err) == (0, "")
    found = report(ran["identity"])
    (snr,) = found["results"]
    assert snr["passed"]
    assert snr["ci"][0] <= snr["reached"] <= snr["ci"][1]
    assert snr["reached"] > snr["control"]["at_least"] > 0
    assert found["attack"]["distribution"] == "encoding-harness"
    assert len(bytes.fromhex(found["attack"]["source_sha256"])) == 32
    assert "torch" in found["packages"]
    assert found["created"]


def test_one_control_out_of_reach_fails_the_attack(ran):
    near, _, far, *_ = report(ran["weak"])["results"]
    assert (ran["weak"].code, ran["weak"].json["passed"]) == (1, False)
    assert near["passed"]
    assert not far["passed"]
    assert (far["status"], far["error"], far["reached"]) == ("ok", None, near["reached"])


def test_where_less_is_worse_what_was_reached_must_be_below(ran):
    _, loose, _, strict, *_ = report(ran["weak"])["results"]
    assert (loose["leaks_more"], loose["reached"]) == ("lower", strict["reached"])
    assert 1e-9 < loose["reached"] < 1e-3
    assert (loose["passed"], strict["passed"]) == (True, False)


@pytest.mark.parametrize(
    ("attack", "status", "reason"),
    [
        ("blind", "not_applicable", "ChannelNotGranted: 'blind' needs encodings"),
        ("broken", "failed", "plugin 'stubborn' of distribution 'stubborn': 'broken' cannot be"),
        ("homeless", "unavailable", "harness assets fetch cifar10"),
        ("misasked", "unavailable", "Unknown option 'colour'"),
        ("weak", "ok", "returned no candidate scores"),
    ],
)
def test_a_cell_without_the_number_fails_with_its_reason(ran, attack, status, reason):
    assert (ran[attack].code, ran[attack].err) == (1, "")
    result = report(ran[attack])["results"][-1]
    assert (result["passed"], result["status"], result["reached"]) == (False, status, None)
    assert reason in result["error"]


def test_every_result_names_a_record_that_can_be_shown(here, ran):
    for name in ("identity", "weak", "blind", "broken"):
        for result in report(ran[name])["results"]:
            kept = json.loads((here.cache / "records" / f"{result['record']}.json").read_text())
            assert (kept["status"], kept["attack"]["name"]) == (result["status"], name)


def test_what_this_machine_lacks_is_not_held_against_an_attack(here, ran):
    kept = {path.name.rpartition("-")[0] for path in (here.cache / "controls").iterdir()}
    assert kept == set(ATTACKS) - {"homeless", "misasked"} | {"mean-filter"}


def test_a_second_run_is_answered_by_the_first(ran):
    first, again = report(ran["identity"]), report(ran["again"])
    assert again["results"] == first["results"]
    assert again["id"] == first["id"]


def test_a_learner_must_learn_what_there_is_to_learn(ran):
    """Of two classes 2·√2 apart the best classifier names Φ(√2) = 92.14 % rightly."""
    found = report(ran["learner"])
    assert (ran["learner"].code, found["learner"]["name"]) == (1, "mean-filter")
    accuracy, share, far, unknown = found["results"]
    assert [each["passed"] for each in found["results"]] == [True, True, False, False]
    assert share["reached"] == pytest.approx(accuracy["reached"] / 0.92135, rel=1e-4)
    assert share["ci"] == pytest.approx([end / 0.92135 for end in accuracy["ci"]], rel=1e-4)
    assert far["status"] == "ok"
    assert unknown["error"] == "nobody knows the best accuracy there is on 'fashion-mini'"


def test_people_get_a_table_and_a_verdict(ran):
    table = ran["table"]
    assert table.code == 1
    assert "none on fashion-mini (private_size=12" in table.out
    assert "≥ 25" in table.out
    assert "≤ 0.001" in table.out
    assert "failed: not_applicable" in table.out
    assert "ChannelNotGranted: 'blind' needs encodings" in table.out
    assert "identity passed 1 control: " in table.out
    assert "weak failed 4 of 6 controls: " in table.out
    assert "no metric and no finding 'snr_bd'. Did you mean 'snr_db'?" in table.out
    assert "blind failed 1 of 1 control: " in table.out
    assert "\x1b" not in table.out


def test_bad_input_is_refused_before_anything_runs(here, ran):
    before = sorted(here.cache.rglob("*"))
    refused = here.series([["control", *arguments.split()] for arguments in REFUSED])
    for done, message in zip(refused, REFUSED.values(), strict=True):
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert "Traceback" not in done.err
    assert sorted(here.cache.rglob("*")) == before


def test_what_a_plugin_must_reach_is_described(here):
    learner = here.harness("describe", "mean-filter")
    assert "): share must reach 0.8\n" in learner.out

    described = here.harness("describe", "weak")
    assert "\ncontrols:\n  none on fashion-mini (" in described.out
    assert "): snr_db must reach 25\n" in described.out


def test_nothing_is_left_behind(here, ran):
    assert here.left_behind() == []

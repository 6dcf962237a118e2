"""`harness control`: attacks that break what they must, and strangers' attacks that do not."""

import json

import pytest
from strangers import Machine, install

SIZES = {"private_size": 12, "public_size": 40, "test_size": 20, "metrics": "snr_db,mse"}
STRANGERS = f"""
from harness.api import AttackSpec, Channel, Control, hookimpl

SIZES = {SIZES!r}

def on_nothing(metric, at_least, dataset="fashion-mini", **options):
    return Control("none", dataset, metric, at_least, options=SIZES | options)

def attack(name, *controls, factory="harness_plugins.attacks.identity.rescale:Identity"):
    needs = (frozenset({{Channel.ENCODINGS}}),)
    return AttackSpec(name=name, version="1", summary="s", reference="r", factory=factory,
                      needs=needs, controls=controls)

@hookimpl
def harness_attacks():
    return [
        attack("sound", on_nothing("snr_db", 25.0), on_nothing("mse", 1e-3)),
        attack("hopeless", on_nothing("snr_db", 25.0), on_nothing("snr_db", 200.0)),
        attack("harmless", on_nothing("mse", 1e-9)),
        attack("blind", on_nothing("snr_db", 25.0, threat_model="fl-realistic")),
        attack("broken", on_nothing("snr_db", 25.0), factory="gone:X"),
        attack("homeless", on_nothing("snr_db", 25.0, dataset="cifar10")),
        attack("misasked", on_nothing("snr_db", 25.0, colour="red")),
        attack("nameless", on_nothing("snr", 25.0)),
        attack("guess", on_nothing("identification.top1", 0.5)),
        attack("idle"),
    ]
"""
HERE = ("--threads", "1", "--device", "cpu")
ATTACKS = (
    *("sound", "hopeless", "harmless", "blind", "broken", "homeless", "misasked", "nameless"),
    "guess",
)
RUNS = {
    **{name: ["control", name, *HERE, "--json"] for name in ATTACKS},
    "table": ["control", "sound", "hopeless", "blind", *HERE],
    "identity": ["control", "identity", *HERE, "--json"],
    "again": ["control", "sound", *HERE, "--json"],
}
REFUSED = {
    "idel": "Unknown attack 'idel'. Did you mean 'idle'?",
    "idle": "'idle' declares no control",
    "sound idle": "'idle' declares no control",
    "sound[radius=1]": "'sound' has no option 'radius'.",
    "sound --seed -1": "seed: Input should be greater than or equal to 0",
    "sound --all": "one of the two",
    "": "one of the two",
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


def test_an_attack_that_breaks_what_it_must_passes(ran):
    assert (ran["sound"].code, ran["sound"].err) == (0, "")
    snr, mse = report(ran["sound"])["results"]
    assert snr["passed"]
    assert mse["passed"]
    assert snr["reached"] > 25
    assert snr["ci"][0] <= snr["reached"] <= snr["ci"][1]
    assert (mse["leaks_more"], mse["control"]["at_least"]) == ("lower", 1e-3)
    assert mse["reached"] < 1e-3


def test_a_built_in_attack_passes(ran):
    assert ran["identity"].code == 0, ran["identity"]
    found = report(ran["identity"])
    assert found["attack"]["distribution"] == "encoding-harness"
    assert len(found["attack"]["source_sha256"]) == 64
    assert {"python", "code", "created"} & found.keys() == {"code", "created"}
    assert "torch" in found["packages"]


def test_one_control_out_of_reach_fails_the_attack(ran):
    assert ran["hopeless"].code == 1
    assert not ran["hopeless"].json["passed"]
    near, far = report(ran["hopeless"])["results"]
    assert near["passed"]
    assert not far["passed"]
    assert (far["status"], far["error"], far["reached"]) == ("ok", None, near["reached"])


def test_where_less_is_worse_too_much_is_a_failure(ran):
    (mse,) = report(ran["harmless"])["results"]
    assert (ran["harmless"].code, mse["passed"]) == (1, False)
    assert mse["reached"] > 1e-9


@pytest.mark.parametrize(
    ("attack", "status", "reason"),
    [
        ("blind", "not_applicable", "ChannelNotGranted: 'blind' needs encodings"),
        ("broken", "failed", "plugin 'stubborn' of distribution 'stubborn': 'broken' cannot be"),
        ("homeless", "unavailable", "harness assets fetch cifar10"),
        ("misasked", "unavailable", "Unknown option 'colour'"),
        ("nameless", "ok", "no metric and no finding 'snr'. Did you mean 'snr_db'?"),
        ("guess", "ok", "returned no candidate scores"),
    ],
)
def test_a_cell_without_the_number_fails_with_its_reason(ran, attack, status, reason):
    assert (ran[attack].code, ran[attack].err) == (1, "")
    (result,) = report(ran[attack])["results"]
    assert (result["passed"], result["status"], result["reached"]) == (False, status, None)
    assert reason in result["error"]


def test_every_result_names_a_record_that_can_be_shown(here, ran):
    for name in ("sound", "hopeless", "blind", "broken"):
        for result in report(ran[name])["results"]:
            kept = json.loads((here.cache / "records" / f"{result['record']}.json").read_text())
            assert (kept["status"], kept["attack"]["name"]) == (result["status"], name)


def test_what_this_machine_lacks_is_not_held_against_an_attack(here, ran):
    kept = {path.name.rpartition("-")[0] for path in (here.cache / "controls").iterdir()}
    assert kept == {*ATTACKS, "identity"} - {"homeless", "misasked"}


def test_a_second_run_is_answered_by_the_first(ran):
    first, again = report(ran["sound"]), report(ran["again"])
    assert again["results"] == first["results"]
    assert again["id"] == first["id"]


def test_people_get_a_table_and_a_verdict(ran):
    table = ran["table"]
    assert table.code == 1
    assert "none on fashion-mini (private_size=12" in table.out
    assert "≥ 25" in table.out
    assert "≤ 0.001" in table.out
    assert "failed: not_applicable" in table.out
    assert "ChannelNotGranted: 'blind' needs encodings" in table.out
    assert "sound passed 2 controls: " in table.out
    assert "hopeless failed 1 of 2 controls: " in table.out
    assert "blind failed 1 of 1 control: " in table.out
    assert "\x1b" not in table.out


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_input_is_refused_before_anything_runs(here, ran, arguments):
    before = sorted(here.cache.rglob("*"))
    done = here.harness("control", *arguments.split())
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert REFUSED[arguments] in done.err
    assert sorted(here.cache.rglob("*")) == before


def test_what_an_attack_must_break_is_described(here):
    described = here.harness("describe", "sound")
    assert "\ncontrols:\n  none on fashion-mini (" in described.out
    assert "): snr_db must reach 25\n" in described.out


def test_nothing_is_left_behind(here, ran):
    assert here.left_behind() == []

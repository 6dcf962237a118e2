"""Plugins that misbehave while they run: a record says how, and nothing else suffers."""

import json
import re
import shutil
from pathlib import Path

import pytest
from strangers import SMALL, Machine, install

from harness.asking.registry import REFUSED
from harness.rng import board_key, owner_key

ROGUES = Path(__file__).with_name("rogues")
STRIPES = (*SMALL, "--dataset", "stripes")
ENTRY = "from rogue_plugins import harness_attacks, harness_defenses"
COMPANION = """
from harness.api import AttackSpec, Channel, hookimpl

@hookimpl
def harness_attacks():
    return [AttackSpec(name="tagalong", version="1", summary="s", reference="r", companion=True,
                       factory="rogue_work:Raises", needs=(frozenset({Channel.ENCODINGS}),))]
"""


def cell(defense, attack, *options):
    return [*STRIPES, "--defense", defense, "--attack", attack, *options]


def on_paper(*arguments):
    return [option for option in cell(*arguments) if option != "--json"]


FAILING = {
    "raises": "RuntimeError: a rogue's own words",
    "exits": "the attack's process ended with exit code 7",
    "dies": "the attack's process was killed by SIGKILL",
    "hoards": "the attack used more than its limit of 1000 MB",
    "misshapes": "attack 'misshapes' returned images of shape (12, 144); wanted (m, 1, 12, 12)",
    "returns-nan": "attack 'returns-nan' returned NaN or infinite values in 12 of 12 images",
    "crowds": "attack 'crowds' returned 24 reconstructions of 12 private images",
    "returns-none": "TypeError: reconstruct must return a Reconstruction, not NoneType",
    "reads-stdin": "RuntimeError: read '' and b''",
    "leaves-a-child": "RuntimeError: gone",
    "peeks": "ChannelNotGranted: 'sources' was not granted under the threat model 'informed'",
}
SPOILT = {
    "fails-to-encode": "'fails-to-encode' raised RuntimeError: no image like that (rogue_work.py:",
    "encodes-too-few": "defense 'encodes-too-few' returned images [11, 1, 12, 12] float32; ",
    "encodes-nan": "defense 'encodes-nan' returned images that are not all finite",
}
LIMITS = ("--megabytes", "1000")
SEED, SECRET = 3, b"an owner's own key, of 31 bytes"
FRAME = {
    *("attack", "granted", "threat_model", "mean", "std", "low", "high", "shape"),
    *("input_shape", "classes", "n_private", "encoder", "victim", "protocol", "key"),
    *("device", "seconds", "megabytes", "threads", "precision", "sums"),
}
"""What a view may say besides tensors: whatever is new here has to be thought about."""
CELLS = {
    **{name: cell("none", name, *LIMITS) for name in FAILING},
    **{name: cell(name, "identity") for name in SPOILT},
    "sleeps": cell("none", "sleeps", "--seconds", "1"),
    "greedy": cell("encodes-nan", "greedy"),
    "prints": cell("none", "prints"),
    "checks-gradients": cell("none", "checks-gradients", "--targets", "4"),
    "digs": cell("singmix", "digs", "--seed", str(SEED)),
    "on paper": on_paper("none", "exits", *LIMITS),
    "raises on paper": on_paper("none", "raises", *LIMITS),
    "sleeps on paper": on_paper("none", "sleeps", "--seconds", "1"),
    "toils on paper": on_paper("none", "toils", "--seconds", "3"),
}


@pytest.fixture(scope="module")
def rogue_machine(example, tmp_path_factory):
    """The example, the rogues, and a companion that fails in every cell it joins."""
    site = tmp_path_factory.mktemp("rogues")
    shutil.copytree(ROGUES, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    install(site, "rogues", ENTRY)
    install(site, "tagalong", COMPANION)
    return Machine(tmp_path_factory.mktemp("cache"), (example, site))


@pytest.fixture(scope="module")
def ran(rogue_machine, tmp_path_factory):
    path = tmp_path_factory.mktemp("owner") / "key"
    path.write_bytes(SECRET)
    keyed = [*CELLS["digs"], "--owner-key", str(path)]
    commands = {**CELLS, "digs under a key": keyed}
    return dict(zip(commands, rogue_machine.series(list(commands.values())), strict=True))


@pytest.mark.parametrize("name", [*FAILING, *SPOILT])
def test_a_failure_is_a_record_that_says_what_went_wrong(ran, name):
    record = ran[name].json
    assert (ran[name].code, record["status"]) == (1, "failed")
    assert (FAILING | SPOILT)[name] in record["error"]
    assert ran[name].err == ""


def test_the_log_of_a_failed_attack_is_kept(ran):
    assert ran["raises"].json["log"].endswith("RuntimeError: a rogue's own words")
    assert "rogue_work.py" in ran["raises"].json["log"]
    assert ran["exits"].json["log"] == "about to leave"


def test_on_paper_a_failure_is_one_sentence_then_where_the_record_is_then_the_log(ran):
    lines = ran["on paper"].out.splitlines()
    assert lines[0].startswith("none × exits on stripes")
    assert lines[1] == "failed: the attack's process ended with exit code 7"
    assert lines[2].startswith("record ")
    assert lines[3:] == ["about to leave"]
    stages = [line.partition(" s  ")[2] for line in ran["on paper"].err.splitlines()]
    assert stages[-2:] == ["attack exits", "prepare exits: stored"]
    assert ran["on paper"].code == 1


def test_the_traceback_of_an_attack_stands_last(ran):
    """What failed can be read without looking for it; where it failed is there for its author."""
    lines = ran["raises on paper"].out.splitlines()
    assert lines[1] == "failed: RuntimeError: a rogue's own words"
    assert lines[2].startswith("record ")
    assert lines[3] == "Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: a rogue's own words"


def test_what_takes_too_long_is_a_timeout(ran):
    record = ran["sleeps"].json
    assert (ran["sleeps"].code, record["status"]) == (1, "timeout")
    assert record["error"] == "the attack did not end within 1 s"
    worked, printed = record["log"].splitlines()
    assert printed == "good night"
    assert re.fullmatch(r"it had [\d.e-]+ s of CPU time, of 1 s on 1 thread", worked)


def computed(ran, attack):
    """The seconds that an attack out of time had to itself, as its one line says."""
    (line,) = [n for n in ran[f"{attack} on paper"].out.splitlines() if n.startswith("timeout: ")]
    told = re.search(r"did not end within (\d) s; it had ([\d.e-]+) s of CPU time, of \1 s", line)
    assert told, line
    assert ran[f"{attack} on paper"].code == 1
    assert ran[f"{attack} on paper"].out.count("of CPU time") == 1
    return float(told[2])


def test_of_a_time_limit_it_says_how_much_of_it_was_work(ran):
    """One that waited, or was kept waiting by what else the machine does, had little of it."""
    assert computed(ran, "sleeps") < computed(ran, "toils") < 3.5


def test_what_the_threat_model_does_not_grant_is_refused_before_any_stage_runs(ran):
    record = ran["greedy"].json
    assert (ran["greedy"].code, record["status"]) == (1, "not_applicable")
    assert record["error"].startswith("ChannelNotGranted: 'greedy' needs candidates, which the")
    assert "--threat-model" in record["error"]
    assert record["timing"] == record["artifacts"] == {}


def test_what_an_attack_did_not_ask_for_it_does_not_get_though_it_is_granted(ran):
    error = ran["peeks"].json["error"]
    assert "granted: encodings." in error
    assert "lists in `needs` or `optional`" in error


def test_what_an_attack_prints_reaches_no_terminal(ran):
    assert (ran["prints"].code, ran["prints"].err) == (0, "")
    assert ran["prints"].json["privacy"]["snr_db"]["mean"] > 100


def test_a_failing_companion_is_a_flag_and_the_others_stand(ran):
    record = ran["prints"].json
    assert set(record["companions"]) == {"identity", "nearest"}
    (flag,) = [flag for flag in record["flags"] if flag["name"].startswith("companion_failed")]
    assert "tagalong" in flag["name"] + flag["message"]
    assert "a rogue's own words" in flag["message"]


def test_the_model_an_attacker_gets_is_the_one_its_gradients_were_taken_at(ran):
    record = ran["checks-gradients"].json
    assert record["diagnostics"]["gradient_error"] < 1e-4
    assert record["channels_used"] == ["batch_labels", "gradients", "model"]


# -- what lies around where an attack works ------------------------------------------------------


@pytest.fixture(params=["digs", "digs under a key"])
def dug(request, ran):
    """What an attack saw that looked for more than it was given, by what it was asked to do."""
    record = ran[request.param].json
    assert set(record["channels_used"]) == {"encodings", "weights", "sources", "n_private"}
    return json.loads(record["error"].removeprefix("RuntimeError: "))


def test_it_finds_the_files_of_its_needs_and_no_others(dug):
    assert dug["prepare"]["files"] == ["view.json"]
    assert dug["reconstruct"]["files"] == [
        *("encodings.safetensors", "sources.safetensors", "view.json", "weights.safetensors"),
    ]


def test_it_finds_nothing_beside_them_but_what_it_has_learned(dug):
    """While it prepares there is no release anywhere yet."""
    assert dug["prepare"]["beside"] == ["before/view.json"]
    own = [f"view/{name}" for name in dug["reconstruct"]["files"]]
    learned = {"before/view.json", "learned.safetensors", "out/prepared.safetensors"}
    assert set(dug["reconstruct"]["beside"]) - learned == set(own)


def test_the_frame_has_no_room_for_a_secret(dug):
    for seen in dug.values():
        assert set(seen["frame"]) == FRAME
        assert seen["frame"]["attack"] == {"name": "digs", "config": {}}
        assert seen["frame"]["encoder"] is seen["frame"]["victim"] is None
        assert seen["frame"]["n_private"] == 12
        assert {type(value) for value in seen["frame"]["protocol"].values()} <= {int, str}


def test_its_key_is_its_own_each_time_and_none_of_the_owners(dug):
    keys = {seen["frame"]["key"] for seen in dug.values()}
    owners = [owner_key(SEED, None), owner_key(SEED, SECRET), board_key(SEED)]
    assert len(keys) == 2
    assert not keys & {key.hex() for key in owners}
    assert not any(key.hex() in json.dumps(dug) for key in owners)
    assert not any(text in json.dumps(dug) for text in (SECRET.hex(), SECRET.decode()))


def test_nothing_around_it_leads_to_the_cache(dug, rogue_machine):
    for seen in dug.values():
        ours = {name for name in seen["environment"] if name.startswith("HARNESS_")}
        assert ours <= {REFUSED}
        found = {part: json.dumps(part_of) for part, part_of in seen.items()}
        assert [part for part, text in found.items() if str(rogue_machine.cache) in text] == []


def test_nothing_is_left_behind(rogue_machine, ran):
    assert rogue_machine.left_behind() == []

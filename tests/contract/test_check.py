"""`harness check`: what is sound passes, and each fault of a plugin is found and explained."""

import shutil
from pathlib import Path

import pytest
from strangers import SMALL, Machine, install

ROGUES = Path(__file__).with_name("rogues")
ENTRIES = {
    "rogues": "from rogue_plugins import harness_attacks, harness_defenses",
    "faulty": "from faulty_plugins import harness_attacks, harness_defenses, harness_learners",
}
FAULTS = {
    ("flips-coins", "determinism"): "two runs under one key differ in encodings",
    ("flips-coins", "global-state"): "it moves torch's random numbers",
    ("widens", "release"): "float64; wanted [24,...] float32",
    ("hoards-rounds", "memory"): "each run leaves 24 KiB behind",
    ("ignores-its-key", "secrets"): "another key gives the same encodings",
    ("spoils-its-input", "release"): "it changes private images in place",
    ("mixes-devices", "device"): "it mixes devices (faulty_work.py:",
    ("encodes-nan", "grey"): "images that are not all finite",
    ("fails-to-encode", "release"): "RuntimeError: no image like that (rogue_work.py:",
    ("peeks", "answer"): "'sources' was not granted",
    ("misshapes", "answer"): "wanted (m, 1, 16, 16)",
    ("returns-nan", "answer"): "returned NaN or infinite values",
    ("raises", "answer"): "RuntimeError: a rogue's own words",
    ("draws-by-numpy", "determinism"): "two runs on one view differ in images",
    ("draws-by-numpy", "global-state"): "it moves numpy's random numbers",
    ("draws-by-numpy", "declaration"): "it lacks reference, a control",
    ("prefers-cuda", "device"): "images.to('cuda')",
    ("wants-two", "channels"): "with encodings alone: 'sources' was not granted",
    ("wants-two", "tiny"): "IndexError",
    ("says-too-little", "answer"): "logits are [24, 2] float32; wanted [24, 3]",
    ("learns-by-numpy", "determinism"): "two trainings on one lesson under one seed differ",
    ("learns-by-numpy", "global-state"): "it moves numpy's random numbers",
    ("learns-by-numpy", "declaration"): "it lacks reference, a control",
    ("needs-a-public", "no-public"): "IndexError",
    ("knows-two-rounds", "rounds"): "IndexError",
}
SOUND = [
    *(("blur", name) for name in ("release", "secrets", "odd-sized", "device", "memory")),
    *(("sharpen", name) for name in ("answer", "channels", "constant", "budget")),
    *(("stripes", name) for name in ("images", "labels", "scale", "splits")),
    *(("max_error", name) for name in ("score", "direction", "range", "tiny")),
    *(("corners", name) for name in ("features", "device")),
    *(("spectrum", name) for name in ("answer", "rounds", "no-public", "one-class", "device")),
]


@pytest.fixture(scope="module")
def faulty_machine(example, tmp_path_factory):
    site = tmp_path_factory.mktemp("rogues")
    shutil.copytree(ROGUES, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in (ENTRIES | {"unfinished": "import what_is_nowhere"}).items():
        install(site, name, source)
    return Machine(tmp_path_factory.mktemp("cache"), (example, site))


@pytest.fixture(scope="module")
def results(faulty_machine):
    return faulty_machine.checked([*FAULTS, *SOUND])


@pytest.mark.parametrize("asked", FAULTS, ids="-".join)
def test_a_fault_is_found_and_there_is_a_remedy(results, asked):
    result = results[asked]
    assert result["verdict"] == "failed", result
    assert FAULTS[asked] in result["message"]
    assert result["fix"]


@pytest.mark.parametrize("asked", SOUND, ids="-".join)
def test_what_is_sound_passes(results, asked):
    assert results[asked]["verdict"] == "ok", results[asked]


def reached(record):
    return round(record["privacy"]["snr_db"]["mean"], 2)


@pytest.mark.parametrize("kind", ["float16", "float64"])
def test_an_answer_in_floats_of_any_width_is_one(faulty_machine, kind):
    """To `check` and to `evaluate` alike."""
    cell = (*SMALL, "--dataset", "stripes", "--defense", "none", "--attack")
    asked = ("check", f"answers-in[kind={kind}]", "--only", "answer", "--only", "determinism")
    checked, found, usual = faulty_machine.series(
        [asked, [*cell, f"answers-in[kind={kind}]"], [*cell, "answers-in"]]
    )
    assert checked.code == 0, checked.out
    assert (found.code, usual.code) == (0, 0), found.err
    assert reached(found.json) == reached(usual.json)


def test_an_answer_in_whole_numbers_is_none(faulty_machine):
    """To `check` and to `evaluate` alike."""
    asked = ("check", "answers-in[kind=int32]", "--only", "answer", "--json")
    cell = (*SMALL, "--dataset", "stripes", "--attack", "answers-in[kind=int32]")
    checked, found = faulty_machine.series([asked, cell])
    assert (checked.code, found.code) == (1, 1)
    wanted = "attack 'answers-in' returned int32 images; wanted floats"
    assert [r["message"] for r in checked.json["results"]] == [wanted]
    assert found.json["error"] == wanted


@pytest.mark.parametrize(("kind", "code"), [("float16", 0), ("float64", 0), ("int32", 1)])
def test_what_a_learner_says_is_read_alike(faulty_machine, kind, code):
    asked = ("check", f"says-in[kind={kind}]", "--only", "answer")
    learner = ("--only", "utility", "--learner", f"says-in[kind={kind}]")
    checked, found = faulty_machine.series([asked, (*SMALL, *learner, "--dataset", "stripes")])
    assert (checked.code, found.code) == (code, code), checked.out


def test_what_hangs_is_ended_and_what_builds_on_it_is_left_out(faulty_machine):
    only = ("--only", "answer", "--only", "determinism")
    ran = faulty_machine.harness("check", "sleeps", "--seconds", "1", *only, "--json")
    assert (ran.code, ran.err) == (1, "")
    answer, determinism = ran.json["results"]
    assert (answer["verdict"], answer["message"]) == ("failed", "it did not end within 16 s")
    assert "budget.seconds" in answer["fix"]
    assert (determinism["verdict"], "'answer'" in determinism["message"]) == ("skipped", True)
    assert faulty_machine.left_behind() == []


def test_a_cause_is_told_once_and_what_is_built_on_it_is_not_asked(faulty_machine):
    raises, tiny = faulty_machine.series([["check", "raises"], ["check", "wants-two", "--json"]])
    told = [line for line in raises.out.splitlines() if "a rogue's own words" in line]
    assert len(told) == 1
    assert told[0].startswith("FAILED  answer")
    assert "skipped determinism   not asked: 'answer' failed" in raises.out
    assert "skipped controls      not asked: 'answer' failed" in raises.out
    assert raises.out.count("fix: ") == 2  # of its declaration, which lacks a control, and this
    faults = {r["check"]: (r["verdict"], r["message"]) for r in tiny.json["results"]}
    assert faults["answer"][0] == faults["budget"][0] == "ok"
    messages = [message for verdict, message in faults.values() if verdict == "failed"]
    assert len(set(messages)) == len(messages)


def test_two_checks_with_one_fault_report_it_once(faulty_machine):
    only = ("--only", "grey", "--only", "colour", "--only", "constant", "--only", "memory")
    ran = faulty_machine.harness("check", "raises", *only, "--json")
    first, *others = ran.json["results"]
    assert (first["verdict"], ran.code) == ("failed", 1)
    told = {(other["verdict"], other["message"], other["fix"]) for other in others}
    assert told == {("skipped", "it fails by the same fault as 'grey'", "")}


def test_what_dies_is_reported_on_paper_too(faulty_machine):
    ran = faulty_machine.harness("check", "dies", "--only", "answer")
    head, line, fix, verdict = ran.out.splitlines()
    assert head == "dies 1 — attacks, rogues 1.0"
    assert line == "FAILED  answer  its process was killed by SIGKILL"
    assert fix.strip().startswith("fix: ")
    assert verdict == "1 checks: 1 must be fixed"
    assert (ran.code, ran.err.split()[2:]) == (1, ["check", "dies"])


def test_what_cannot_be_asked_is_refused(faulty_machine):
    refused = {
        "blurr": "Did you mean 'blur'?",
        "blur --only memry": "Did you mean 'memory'?",
        "informed": "nothing to check",
        "unfinished": "cannot be imported: ModuleNotFoundError",
    }
    commands = [["check", *written.split()] for written in refused]
    for ran, reason in zip(faulty_machine.series(commands), refused.values(), strict=True):
        assert ran.code == 2
        assert reason in ran.err

"""Declarations that cannot be used: each is named by `doctor`, none takes another plugin down."""

import pytest
from strangers import SMALL, Machine, install, names

DEFENSE = """
from harness.api import Config, DefenseSpec, Stage, hookimpl

def declared(**changes):
    usual = dict(name="veil", version="1", summary="s", reference="r",
                 factory="os.path:join", stage=Stage.ENCODING)
    return DefenseSpec(**usual | changes)
"""
ATTACK = """
from harness.api import AttackSpec, Channel, hookimpl

def declared(*needs):
    return AttackSpec(name="pry", version="1", summary="s", reference="r",
                      factory="os.path:join", needs=needs)
"""
ONE_DEFENSE = """
@hookimpl
def harness_defenses():
    return [declared({})]
"""
ONE_ATTACK = """
@hookimpl
def harness_attacks():
    return [declared({})]
"""


def defense(changes):
    return DEFENSE + ONE_DEFENSE.format(changes)


def attack(needs):
    return ATTACK + ONE_ATTACK.format(needs)


BROKEN = {
    "import-error": (
        "import no_such_module_anywhere",
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    ),
    "syntax-error": ("def harness_defenses(:", "cannot be imported: SyntaxError: invalid syntax"),
    "system-exit": ("raise SystemExit('so long')", "cannot be imported: SystemExit: so long"),
    "exits-at-once": (
        "import os\nos._exit(7)",
        "cannot be imported: that ended Python with exit code 7",
    ),
    "goes-past-everyone": (
        "raise KeyboardInterrupt('so long')",
        "cannot be imported: KeyboardInterrupt: so long",
    ),
    "changes-the-judge": (
        "from harness.scoring import verdict\nverdict.verdict = lambda *_: 'leaks nothing'",
        "is refused: when it is imported it changes harness.scoring.verdict.verdict",
    ),
    "replaces-json": (
        "import json\njson.dumps = str",
        "is refused: when it is imported it changes json.dumps",
    ),
    "misspelt-hook": (
        DEFENSE + "@hookimpl\ndef harness_defences():\n    return [declared()]",
        "there is no hook 'harness_defences'. Did you mean 'harness_defenses'?",
    ),
    "unmarked-hook": (
        DEFENSE + "def harness_defenses():\n    return [declared()]",
        "'harness_defenses' lacks @hookimpl, so it would not be called",
    ),
    "wrong-signature": (
        DEFENSE + "@hookimpl\ndef harness_defenses(registry):\n    return [declared()]",
        "breaks a hook's signature: ",
    ),
    "raising-hook": (
        DEFENSE + "@hookimpl\ndef harness_defenses():\n    raise RuntimeError('not today')",
        "harness_defenses raised RuntimeError: not today",
    ),
    "hook-of-nothing": (
        DEFENSE + "@hookimpl\ndef harness_defenses():\n    pass",
        "harness_defenses raised TypeError: 'NoneType' object is not iterable",
    ),
    "hook-of-names": (
        DEFENSE + "@hookimpl\ndef harness_defenses():\n    return ['veil']",
        "harness_defenses must return DefenseSpec objects; it returned 'veil'",
    ),
    "wrong-spec": (
        DEFENSE + "@hookimpl\ndef harness_attacks():\n    return [declared()]",
        "harness_attacks must return AttackSpec objects; it returned DefenseSpec(",
    ),
    "usurper": (
        defense("name='none'"),
        "its defense 'none' is refused: plugin 'none' of distribution 'encoding-harness' has "
        "that name already",
    ),
    "twin-two": (
        defense("name='twin'"),
        "its defense 'twin' is refused: plugin 'twin-one' of distribution 'twin-one' has that "
        "name already",
    ),
    "shouting": (defense("name='VEIL'"), "'VEIL' is not a name: lower-case words"),
    "config-of-dict": (defense("config=dict"), "'veil': config must be a pydantic model class"),
    "unfit-preset": (
        defense("presets={'quick': {'strength': 3}}"),
        "'veil': preset 'quick' does not fit its config: strength: Extra inputs are not permitted",
    ),
    "slashed-factory": (
        defense("factory='veil/work.py'"),
        "'veil': factory must read 'package.module:Class'; it reads 'veil/work.py'",
    ),
    "needless": (attack(""), "'pry': needs names no alternative"),
    "reads-no-release": (
        attack("frozenset({Channel.PUBLIC})"),
        "'pry': needs must name exactly one of encodings, features, gradients, statistics, updates",
    ),
    "reads-two-releases": (
        attack("frozenset({Channel.ENCODINGS, Channel.GRADIENTS})"),
        "'pry': needs must name exactly one of encodings, features, gradients, statistics, updates",
    ),
}
HEALTHY = {"twin-one": defense("name='twin'"), "whole": defense("name='hollow', factory='gone:X'")}


@pytest.fixture(scope="module")
def crowd(example, tmp_path_factory):
    """The example beside every broken stranger at once."""
    site = tmp_path_factory.mktemp("strangers")
    for distribution, (source, _) in BROKEN.items():
        install(site, distribution, source)
    for distribution, source in HEALTHY.items():
        install(site, distribution, source)
    shadow = site / "shadow-1.0.dist-info"
    shadow.mkdir()
    (shadow / "METADATA").write_text("Metadata-Version: 2.1\nName: shadow\nVersion: 1.0\n")
    (shadow / "top_level.txt").write_text("harness_plugins\n")
    return Machine(tmp_path_factory.mktemp("cache"), (site, example))


@pytest.fixture(scope="module")
def ran(crowd, machine):
    commands = {
        "list": ["list", "--json"],
        "plain list": ["list", "defenses"],
        "doctor": ["doctor", "--json"],
        "verbose": ["doctor", "--verbose"],
        "unharmed": [*SMALL, "--dataset", "stripes", "--attack", "inputlayer", "--defense", "clip"],
        "hollow": [*SMALL, "--dataset", "stripes", "--attack", "inputlayer", "--defense", "hollow"],
        "meant": ["evaluate", "--defense", "import-error"],
    }
    return dict(zip(commands, crowd.series(list(commands.values())), strict=True))


@pytest.mark.parametrize("distribution", BROKEN)
def test_doctor_names_plugin_distribution_and_fault(ran, distribution):
    findings = {found["what"]: found for found in ran["doctor"].json}
    found = findings[f"plugin '{distribution}' of distribution '{distribution}'"]
    assert not found["ok"]
    assert found["message"].startswith(BROKEN[distribution][1])


def test_doctor_fails_and_shows_where_a_plugin_broke(ran):
    assert ran["doctor"].code == ran["verbose"].code == 1
    assert "Traceback" not in ran["doctor"].err + ran["verbose"].err
    assert "import no_such_module_anywhere" in ran["verbose"].out


def test_a_distribution_that_brings_a_package_of_our_name_is_named(ran):
    found = {found["what"]: found for found in ran["doctor"].json}["own files"]
    told = "distribution 'shadow' brings a package 'harness_plugins', as 'encoding-harness' does"
    assert (found["ok"], found["message"]) == (False, told)


def test_everything_else_is_listed_as_before(ran, machine):
    listed = names(ran["list"].json)
    assert ran["list"].code == 0
    assert listed - names(machine.harness("list", "--json").json) == {
        ("defenses", "twin"): 1,
        ("defenses", "hollow"): 1,
    }
    assert names(machine.harness("list", "--json").json) - listed == {}
    assert ran["plain list"].err == f"{len(BROKEN)} plugin problems: see `harness doctor`.\n"


def test_evaluate_works_among_them(ran):
    assert ran["unharmed"].code == 0, ran["unharmed"]
    assert ran["unharmed"].json["privacy"]["snr_db"]["mean"] > 40
    assert ran["unharmed"].err == ""


def test_a_factory_that_does_not_import_is_found_by_doctor_and_fails_its_own_cells(ran):
    fault = "'hollow' cannot be loaded from gone:X: ModuleNotFoundError: No module named 'gone'"
    assert any(fault in found["message"] for found in ran["doctor"].json)
    record = ran["hollow"].json
    assert (ran["hollow"].code, record["status"]) == (1, "failed")
    assert record["error"] == f"plugin 'whole' of distribution 'whole': {fault}"
    assert ran["hollow"].err == ""


def test_asking_for_a_broken_plugin_says_that_it_is_broken(ran):
    assert (ran["meant"].code, ran["meant"].out) == (2, "")
    assert "Unknown defense 'import-error'." in ran["meant"].err
    assert "plugin 'import-error' of distribution 'import-error': cannot be" in ran["meant"].err

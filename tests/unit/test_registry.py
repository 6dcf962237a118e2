"""Collecting declarations: what is taken, what is refused and why, and who comes first."""

import sys
from dataclasses import replace
from importlib.metadata import Distribution, EntryPoint
from types import ModuleType

import pytest

from harness.api import (
    AttackSpec,
    Channel,
    Config,
    DefenseSpec,
    PluginError,
    Preparation,
    Stage,
    UsageError,
    VictimSpec,
    hookimpl,
)
from harness.asking.registry import KINDS, build_registry, load_factory, registry

pytestmark = pytest.mark.core


class Installed(Distribution):
    """A distribution by name, without files."""

    def __init__(self, name):
        self._name = name

    def read_text(self, filename):
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 1\n"

    def locate_file(self, path):
        raise NotImplementedError


def defense(name, **changes):
    usual = {"version": "1", "summary": "s", "reference": "r", "factory": "json:JSONDecoder"}
    return DefenseSpec(name=name, stage=Stage.ENCODING, **usual | changes)


def attack(name, *needs):
    return AttackSpec(
        name=name,
        version="1",
        summary="s",
        reference="r",
        factory="json:JSONDecoder",
        needs=tuple(frozenset(map(Channel, alternative)) for alternative in needs),
    )


@pytest.fixture
def publish(monkeypatch):
    """An entry point of a distribution whose module declares these defenses and attacks."""

    def entry_point(distribution, defenses=(), attacks=()):
        module = ModuleType(f"declared_by_{distribution.replace('-', '_')}")

        @hookimpl
        def harness_defenses():
            return list(defenses)

        @hookimpl
        def harness_attacks():
            return list(attacks)

        module.harness_defenses, module.harness_attacks = harness_defenses, harness_attacks
        monkeypatch.setitem(sys.modules, module.__name__, module)
        point = EntryPoint(distribution, module.__name__, "harness.plugins")
        vars(point).update(dist=Installed(distribution))
        return point

    return entry_point


def test_the_built_ins_stand_and_need_no_torch_to_be_listed():
    known = registry()
    assert known.problems == []
    assert {kind: bool(known.specs(kind)) for kind in KINDS} == dict.fromkeys(KINDS, True)
    assert known.origin("defenses", "singmix").distribution == "encoding-harness"


def test_a_declaration_is_found_by_kind_and_name(publish):
    known = build_registry([publish("fogs", [defense("fog")], [attack("lamp", {"encodings"})])])
    assert known.spec("defenses", "fog").name == "fog"
    assert known.spec("attacks", "lamp").needs == ({Channel.ENCODINGS},)
    assert str(known.origin("attacks", "lamp")) == "plugin 'fogs' of distribution 'fogs'"


def test_one_name_may_be_a_defense_and_an_attack(publish):
    known = build_registry([publish("fogs", [defense("fog")], [attack("fog", {"features"})])])
    assert known.problems == []


@pytest.mark.parametrize("order", [1, -1])
def test_the_built_in_keeps_its_name_and_then_the_alphabet_decides(publish, order):
    points = [
        publish("zeta", [defense("fog", summary="zeta")]),
        publish("alpha", [defense("fog", summary="alpha"), defense("none", summary="alpha")]),
        publish("encoding-harness", [defense("none", summary="own")]),
    ]
    known = build_registry(points[::order])
    assert known.spec("defenses", "none").summary == "own"
    assert known.spec("defenses", "fog").summary == "alpha"
    assert sorted(map(str, known.problems)) == [
        "plugin 'alpha' of distribution 'alpha': its defense 'none' is refused: plugin "
        "'encoding-harness' of distribution 'encoding-harness' has that name already",
        "plugin 'zeta' of distribution 'zeta': its defense 'fog' is refused: plugin 'alpha' of "
        "distribution 'alpha' has that name already",
    ]


def test_a_faulty_declaration_leaves_the_others_of_its_plugin(publish):
    known = build_registry([publish("fogs", [defense("Fog"), defense("mist"), "haze"])])
    assert [spec.name for spec in known.specs("defenses")] == ["mist"]
    assert len(known.problems) == 2


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"factory": "fog.work.Fog"}, "factory must read 'package.module:Class'"),
        ({"config": Config()}, "config must be a pydantic model class"),
        ({"presets": {"paper": {"k": 4}}}, "preset 'paper' does not fit its config: k: Extra"),
    ],
)
def test_a_fault_is_named(publish, changes, fault):
    (problem,) = build_registry([publish("fogs", [defense("fog", **changes)])]).problems
    assert problem.message.startswith("'fog': ")
    assert fault in problem.message


def test_a_config_that_pydantic_cannot_compile_is_a_problem_of_its_plugin(publish):
    class Odd(Config):
        lamp: Installed = None

    known = build_registry([publish("fogs", [defense("fog", config=Odd), defense("mist")])])
    assert [spec.name for spec in known.specs("defenses")] == ["mist"]
    assert "PydanticSchemaGenerationError: Unable to generate" in known.problems[0].message


def test_hooks_are_found_whatever_else_a_module_holds(publish):
    point = publish("fogs", [defense("fog")])
    module = sys.modules[point.module]
    module.Fog, module.number, module.nothing, module.made = Installed, 4, None, defense
    module.harness_metrics = list  # a hook by name, without the marker
    known = build_registry([point])
    assert [spec.name for spec in known.specs("defenses")] == ["fog"]
    assert [p.message for p in known.problems] == [
        "'harness_metrics' lacks @hookimpl, so it would not be called"
    ]


@pytest.mark.parametrize(
    "needs", [(), ({"public"},), ({"encodings", "features"},), ({"encodings"}, {"labels"})]
)
def test_every_alternative_of_an_attacks_needs_reads_one_release(publish, needs):
    known = build_registry([publish("lamps", attacks=[attack("lamp", *needs)])])
    assert known.specs("attacks") == []
    assert "needs" in known.problems[0].message


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UsageError) as caught:
        registry().spec("defenses", "singmx")
    assert str(caught.value) == "Unknown defense 'singmx'. Did you mean 'singmix'?"


def test_a_name_like_no_other_gets_the_list(publish):
    known = build_registry([publish("fogs", [defense("fog"), defense("mist")])])
    with pytest.raises(UsageError, match=r"Unknown defense 'zzz'\. Known: fog, mist\."):
        known.spec("defenses", "zzz")
    with pytest.raises(UsageError, match=r"Unknown threat model 'zzz'\. None are installed\."):
        known.spec("threat_models", "zzz")


def test_a_name_that_a_broken_plugin_bears_says_so(publish):
    known = build_registry([publish("fogs", [defense("Fog")])])
    with pytest.raises(UsageError, match=r"Unknown defense 'fogs'.*'Fog' is not a name"):
        known.spec("defenses", "fogs")


def test_a_factory_is_imported_when_asked_and_blamed_by_name(publish):
    known = build_registry([publish("fogs", [defense("fog"), defense("mist", factory="gone:X")])])
    origin = known.origin("defenses", "fog")
    assert load_factory(known.spec("defenses", "fog"), origin) is __import__("json").JSONDecoder
    with pytest.raises(PluginError, match="distribution 'fogs': 'mist' cannot be loaded from gone"):
        load_factory(known.spec("defenses", "mist"), origin)


def test_a_spec_of_another_kind_is_refused(publish):
    victim = VictimSpec(name="net", version="1", summary="s", reference="r", factory="a:B")
    (problem,) = build_registry([publish("fogs", [victim])]).problems
    assert problem.message.startswith("harness_defenses must return DefenseSpec objects")


CANDIDATES = Preparation("list", "fog.work:make", frozenset({Channel.CANDIDATES}))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"preparations": (CANDIDATES,)}, "preparation 'list' asks for candidates"),
        (
            {"preparations": (Preparation("p", "fog.work:make", frozenset(), ("depth",)),)},
            "preparation 'p' takes unknown depth",
        ),
        (
            {"preparations": (Preparation("p", "fog.work.make", frozenset()),)},
            "preparation 'p' must read 'package.module:function'",
        ),
        ({"effort": "steps"}, "effort 'steps' is no whole number of its config"),
        ({"needs": ()}, "needs names no alternative"),
    ],
)
def test_a_fault_of_an_attack_is_named(publish, changes, fault):
    faulty = replace(attack("lamp", {"encodings"}), **changes)
    (problem,) = build_registry([publish("fogs", [], [faulty])]).problems
    assert fault in str(problem)


def test_an_attack_that_is_many_needs_nothing_of_its_own(publish):
    many = replace(attack("lamps", {"encodings"}), needs=(), factory="", members=("*",))
    known = build_registry([publish("fogs", [], [many])])
    assert known.problems == []
    assert known.spec("attacks", "lamps").members == ("*",)

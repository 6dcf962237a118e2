"""What the built-in plugins say of themselves: enough to be used by, and commands that are real."""

import shlex

import pytest

from harness.api.errors import UsageError
from harness.asking.plan import plan, resolved
from harness.asking.registry import KINDS, registry
from harness.asking.request import Selection, make_request, parse_one, resolve
from harness.cli.ceiling import command as bound
from harness.cli.evaluate import command
from harness.description import description

OURS = [
    (kind, name)
    for kind in KINDS
    for name, entry in registry().entries[kind].items()
    if entry.origin.distribution == "encoding-harness"
]
WITH_EXAMPLE = [p for p in OURS if p[0] not in ("metrics", "threat_models", "ceilings")]

pytestmark = pytest.mark.core


@pytest.mark.parametrize(("kind", "name"), WITH_EXAMPLE)
def test_every_example_is_a_command_that_can_be_planned(kind, name):
    program, subcommand, *written = shlex.split(description(name, kind)["example"])
    assert (program, subcommand) == ("harness", "evaluate")
    given = command.make_context("evaluate", written).params
    fields = {k: v for k, v in given.items() if v is not None and k in make_request().model_dump()}
    cell = plan(make_request(**fields), registry())
    assert cell.reason is None
    named = [cell.dataset, cell.public, cell.victim, cell.space, cell.attack, *cell.defenses]
    written = [parse_one(text).name for text in (cell.request.learner, *cell.learners)]
    assert name in {used.name for used in named if used} | set(written)


@pytest.mark.parametrize("name", [name for kind, name in OURS if kind == "ceilings"])
def test_every_example_of_a_ceiling_asks_for_it(name):
    program, subcommand, *written = shlex.split(description(name, "ceilings")["example"])
    assert (program, subcommand) == ("harness", "ceiling")
    params = bound.make_context("ceiling", written).params
    (text,) = params["ceilings"]
    assert resolved("ceilings", text, "standard", registry()).name == name
    assert plan(make_request(defense=params["defense"]), registry()).reason is None


@pytest.mark.parametrize(("kind", "name"), [p for p in OURS if p[0] != "threat_models"])
def test_every_option_says_what_it_means_and_what_it_may_be(kind, name):
    for option in description(name, kind)["options"]:
        assert option["meaning"], option
        words = set(option["type"].split())
        if words & {"integer", "number"}:
            assert words & {"≥", ">"}, option


@pytest.mark.parametrize(("kind", "name"), [p for p in OURS if p[0] != "threat_models"])
def test_defaults_and_presets_fit_the_config(kind, name):
    """The registry asks this of other distributions' plugins; of ours it takes it for granted."""
    spec = registry().entries[kind][name].spec
    for preset in ({}, *spec.presets.values()):
        spec.config.model_validate(preset)


@pytest.mark.parametrize("name", sorted(name for kind, name in OURS if kind == "defenses"))
def test_every_defense_tells_its_law_its_paper_and_its_weaknesses(name):
    facts = description(name, "defenses")
    assert facts["formula"]
    assert facts["reference"]
    assert facts["weaknesses"]


def test_a_name_of_two_kinds_asks_which():
    with pytest.raises(UsageError, match="say --kind victims or --kind spaces"):
        description("resnet18")
    assert description("resnet18", "spaces")["assets"] == ["resnet18-imagenet"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("kind", "name"), [p for p in OURS if p[0] != "threat_models"])
def test_no_number_is_unbounded(kind, name, value):
    spec = registry().entries[kind][name].spec
    for option in description(name, kind)["options"]:
        if {"integer", "number"} & set(option["type"].split()):
            with pytest.raises(UsageError):
                resolve(spec, Selection(name, {option["name"]: value}), "standard")

"""The language of plugin choice, as users type it."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from harness.api import Config, DefenseSpec, Stage, UsageError
from harness.asking.request import Selection, parse_one, parse_stack, resolve

pytestmark = pytest.mark.core


class FogConfig(Config):
    tau: float = Field(1e-2, gt=0)
    rounds: int = 3
    noise: Literal["sphere", "gaussian"] = "sphere"
    radius: float | None = 2.0


FOG = DefenseSpec(
    name="fog",
    version="1",
    summary="a defense to choose options of",
    reference="none",
    factory="fog:Fog",
    config=FogConfig,
    stage=Stage.ENCODING,
    presets={"quick": {"rounds": 1}, "paper": {"rounds": 9, "tau": 0.5}},
)


def chosen(text, preset="standard"):
    return resolve(FOG, parse_one(text), preset).config


def fault(text, preset="standard"):
    with pytest.raises(UsageError) as caught:
        chosen(text, preset)
    return str(caught.value)


class Plain(BaseModel):
    """A stranger's options, which are no Config."""

    tau: float = 1.0
    steps: tuple[float, ...] = (1.0,)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_strangers_option_is_a_finite_number_too(value):
    plain = replace(FOG, config=Plain, presets={})
    with pytest.raises(UsageError, match=f"'fog': tau={value}: Input should be a finite number"):
        resolve(plain, parse_one(f"fog[tau={value}]"), "quick")
    inside = replace(plain, presets={"quick": {"steps": (2.0, float(value))}})
    with pytest.raises(UsageError, match=r"'fog': steps=.*: Input should be a finite number"):
        resolve(inside, parse_one("fog"), "quick")


def test_a_stack_is_read_in_order():
    assert parse_stack("gradprune[p=0.9]+mixup[k=4,law=uniform]+none") == (
        Selection("gradprune", {"p": "0.9"}),
        Selection("mixup", {"k": "4", "law": "uniform"}),
        Selection("none"),
    )


def test_spaces_are_welcome():
    spaced = parse_stack(" fog [ tau = 1 , rounds = 2 ] + none ")
    assert spaced == (Selection("fog", {"tau": "1", "rounds": "2"}), Selection("none"))


def test_a_plus_inside_brackets_belongs_to_a_number():
    first, second = parse_stack("fog[tau=1e+2]+fog[tau=2e+1]")
    assert (first.options["tau"], second.options["tau"]) == ("1e+2", "2e+1")
    assert chosen("fog[tau=1e+2]").tau == 100


NAMES = st.from_regex(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9_.+/-]+", fullmatch=True)
SELECTIONS = st.builds(Selection, NAMES, st.dictionaries(NAMES, VALUES, max_size=3))


def written(selection):
    inside = ",".join(f"{key}={value}" for key, value in selection.options.items())
    return f"{selection.name}[{inside}]" if inside else selection.name


@given(st.lists(SELECTIONS, min_size=1, max_size=4))
def test_every_stack_reads_back_as_it_was_written(stack):
    assert parse_stack("+".join(map(written, stack))) == tuple(stack)


@given(st.text(alphabet="fog[]=,+1 .", max_size=12))
def test_whatever_is_typed_is_read_or_refused_with_a_message(text):
    try:
        assert all(selection.name for selection in parse_stack(text))
    except UsageError as error:
        assert str(error).startswith("Cannot read") or "is given twice" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("", "''"),
        ("none+", "''"),
        ("+none", "''"),
        ("fog[tau=1", "'fog[tau=1'"),
        ("fog tau=1", "'fog tau=1'"),
        ("fog[tau=[1]]", "'fog[tau=[1]]'"),
        ("fog[tau]", "'tau'"),
        ("fog[=1]", "'=1'"),
        ("fog[tau=]", "'tau='"),
    ],
)
def test_what_cannot_be_read_is_shown(text, unread):
    with pytest.raises(UsageError, match="option=value") as caught:
        parse_stack(text)
    assert f"Cannot read {unread} in" in str(caught.value)


def test_an_option_given_twice_is_refused():
    assert fault("fog[tau=1,tau=2]") == "'tau' is given twice in 'fog[tau=1,tau=2]'."


def test_presets_overlay_defaults_and_what_is_written_overlays_both():
    assert chosen("fog").rounds == 3
    assert chosen("fog", preset="quick").rounds == 1
    assert chosen("fog[rounds=7]", preset="quick").rounds == 7
    assert chosen("fog[preset=paper]", preset="quick") == FogConfig(rounds=9, tau=0.5)
    assert chosen("fog[preset=paper,tau=0.1]").tau == 0.1
    assert chosen("fog", preset="quick").tau == 1e-2


def test_an_unknown_preset_offers_the_nearest():
    assert fault("fog[preset=papr]") == "'fog' has no preset 'papr'. Did you mean 'paper'?"


def test_an_unknown_option_offers_the_nearest_or_lists_all():
    assert fault("fog[rouns=1]") == "'fog' has no option 'rouns'. Did you mean 'rounds'?"
    assert fault("fog[x=1]") == (
        "'fog' has no option 'x'. Known: noise, preset, radius, rounds, tau."
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fog[rounds=two]", ("'fog': rounds='two':", "valid integer")),
        ("fog[rounds=1.5]", ("rounds='1.5':", "valid integer")),
        ("fog[tau=-1]", ("tau='-1':", "greater than 0")),
        ("fog[noise=pink]", ("noise='pink':", "'sphere' or 'gaussian'")),
        ("fog[tau=0,rounds=x]", ("tau='0':", "; rounds='x':")),
    ],
)
def test_a_wrong_value_is_shown_with_what_would_be_right(text, parts):
    message = fault(text)
    assert all(part in message for part in parts), message
    assert message.endswith("See: harness describe fog")


@pytest.mark.parametrize("word", ["none", "None", "NONE"])
def test_none_means_no_value_where_an_option_may_have_none(word):
    assert chosen("fog").radius == 2.0
    assert chosen(f"fog[radius={word}]").radius is None


def test_none_is_a_wrong_value_elsewhere():
    assert "tau='none':" in fault("fog[tau=none]")

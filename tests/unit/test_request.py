"""What may be asked, and how a refusal reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import ValidationError

from harness.api import UsageError
from harness.asking.request import SIZES, Request, make_request, read_config
from harness.cli import evaluate, matrix

pytestmark = pytest.mark.core


def test_nothing_asked_is_the_default_job() -> None:
    request = make_request()
    assert (request.defense, request.attack, request.dataset) == ("singmix", "unet", "fashion-mini")
    assert request.sizes == SIZES["quick"]


def test_sizes_left_out_come_from_the_preset() -> None:
    sizes = make_request(preset="standard", public_size=50).sizes
    assert (sizes.private, sizes.public, sizes.test) == (1000, 50, 10_000)


def test_seconds_that_are_given_win_over_the_presets() -> None:
    assert make_request(seconds=2.5).time_limit == 2.5
    assert make_request(preset="paper").time_limit == 86_400


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"sed": 1}, r"Unknown option 'sed'\. Did you mean 'seed'\?"),
        ({"seed": -1}, r"seed: Input should be greater than or equal to 0, not -1"),
        ({"seed": "one"}, r"seed: Input should be a valid integer.*not 'one'"),
        ({"threads": 0}, r"threads: Input should be greater than or equal to 1, not 0"),
        ({"threads": 1025}, r"threads: Input should be less than or equal to 1024, not 1025"),
        ({"seconds": float("inf")}, r"seconds: Input should be a finite number"),
        ({"preset": "quik"}, r"preset: Input should be 'quick', 'standard' or 'paper'"),
        ({"private_size": 40, "targets": 41}, r"^targets=41 is more than the private images"),
        (
            {"test_size": 40, "targets": 41, "targets_from": "heldout"},
            r"^targets=41 is more than the test images there are \(40\); raise test_size or lower",
        ),
        ({"targets_from": "test"}, r"targets_from: Input should be 'private' or 'heldout'"),
        ({"judge_at": "releases"}, r"judge_at: Input should be 'image' or 'release'"),
        ({"seed": -1, "rounds": 0}, r"rounds: .*; seed: "),
    ],
)
def test_a_request_that_cannot_be(asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_request(**asked)


def test_more_targets_are_fine_where_there_are_more_images() -> None:
    assert make_request(preset="paper", targets=5000).targets == 5000


def test_a_request_survives_json() -> None:
    request = make_request(defense="singmix[tau=1e-2]", seed=3, targets=7)
    assert Request.model_validate_json(request.model_dump_json()) == request


def test_a_file_gives_options_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cell.toml"
    path.write_text('attack = "linear"\nseed = 4\n')
    assert make_request(**read_config(path)) == make_request(attack="linear", seed=4)


@pytest.mark.parametrize("name", ["cache", "observer", "force", "owner_key"])
def test_a_file_holds_options_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / "cell.toml"
    path.write_text(f'{name} = "x"\n')
    with pytest.raises(UsageError, match=f"Unknown option '{name}' in .*cell.toml"):
        read_config(path)


def commands_option(command: click.Command, name: str) -> click.Option:
    """What a command makes of an option of a request."""
    (option,) = [each for each in command.params if each.name == name]
    assert isinstance(option, click.Option)
    return option


def schema(name: str) -> dict[str, Any]:
    """What the JSON schema says of an option."""
    found: dict[str, Any] = Request.model_json_schema()["properties"][name]
    return found


def choices(name: str) -> set[str]:
    """The values that the model allows for an option; empty if it is free."""
    parts = (schema(name), *schema(name).get("anyOf", ()))
    return {value for part in parts for value in part.get("enum", ())}


def test_commands_have_the_options_of_a_request_in_its_order() -> None:
    asked = list(Request.model_fields)
    for command in (evaluate.command, matrix.command):
        named = [option.name for option in command.params]
        assert [name for name in named if name in asked] == asked


@pytest.mark.parametrize("command", [evaluate.command, matrix.command], ids=["evaluate", "matrix"])
@pytest.mark.parametrize("name", Request.model_fields)
def test_a_command_offers_what_the_model_allows(command: click.Command, name: str) -> None:
    kind = commands_option(command, name).type
    assert (set(kind.choices) if isinstance(kind, click.Choice) else set()) == choices(name)


@pytest.mark.parametrize("name", Request.model_fields)
def test_help_and_schema_say_the_same_and_show_the_default(name: str) -> None:
    said = commands_option(evaluate.command, name).help or ""
    text, _, usual = said.partition("  [default: ")
    default = Request.model_fields[name].default
    assert text.endswith(".")
    if default is None:
        assert schema(name)["description"] == f"{text} If unset: {usual.removesuffix(']')}."
    else:
        assert schema(name)["description"] == text
        assert usual == f"{default}]"


@pytest.mark.parametrize("name", matrix.GRIDS)
def test_a_matrix_takes_several(name: str) -> None:
    option = commands_option(matrix.command, name)
    assert option.multiple
    assert option.help == f"{schema(name)['description']} May be repeated."


@pytest.mark.parametrize("name", sorted(set(Request.model_fields) - set(matrix.GRIDS)))
def test_a_matrix_says_of_an_option_what_an_evaluation_says(name: str) -> None:
    option = commands_option(matrix.command, name)
    assert not option.multiple
    assert option.help == commands_option(evaluate.command, name).help


@pytest.mark.parametrize("name", Request.model_fields)
def test_an_option_that_is_not_given_is_left_to_the_request(name: str) -> None:
    context = evaluate.command.make_context("evaluate", [])
    assert context.params[name] is None


def test_the_schema_has_the_bounds() -> None:
    assert schema("rounds")["minimum"] == 1
    assert schema("private_size")["anyOf"][0] == {"minimum": 1, "type": "integer"}
    assert schema("seconds")["anyOf"][0] == {"exclusiveMinimum": 0, "type": "number"}
    assert schema("threads")["anyOf"][0] == {"minimum": 1, "maximum": 1024, "type": "integer"}


def test_a_request_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make_request().rounds = 2

"""What may be asked, and how a refusal reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from harness.api import UsageError
from harness.asking.request import SIZES, Request, make_request, read_config
from harness.cli.evaluate import REQUEST_OPTIONS

pytestmark = pytest.mark.core

DEPENDS = {"by preset", "by stack and attack", "all", "all cores", "suites, unless quick"}
"""What a help text says of a default that the model leaves open."""


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
        ({"threads": 0}, r"threads: "),
        ({"seconds": float("inf")}, r"seconds: Input should be a finite number"),
        ({"preset": "quik"}, r"preset: Input should be 'quick', 'standard' or 'paper'"),
        ({"private_size": 40, "targets": 41}, r"^targets=41 is more than the private images"),
        (
            {"test_size": 40, "targets": 41, "targets_from": "heldout"},
            r"^targets=41 is more than the test images there are \(40\); raise test_size or lower",
        ),
        ({"targets_from": "test"}, r"targets_from: Input should be 'private' or 'heldout'"),
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


def test_the_command_line_and_the_model_have_the_same_options() -> None:
    assert list(REQUEST_OPTIONS) == list(Request.model_fields)


def choices(name: str) -> set[str]:
    """The values that the model allows for an option; empty if it is free."""
    schema: dict[str, Any] = Request.model_json_schema()["properties"][name]
    return {value for part in (schema, *schema.get("anyOf", ())) for value in part.get("enum", ())}


@pytest.mark.parametrize("name", REQUEST_OPTIONS)
def test_the_command_line_offers_what_the_model_allows(name: str) -> None:
    kind, _ = REQUEST_OPTIONS[name]
    offered = set(kind.choices) if isinstance(kind, click.Choice) else set()
    assert offered == choices(name)


@pytest.mark.parametrize("name", REQUEST_OPTIONS)
def test_the_default_in_a_help_text_is_the_models(name: str) -> None:
    written = re.findall(r"\[default: (.+)\]$", REQUEST_OPTIONS[name][1])
    default = Request.model_fields[name].default
    assert set(written) <= DEPENDS if default is None else written == [str(default)]

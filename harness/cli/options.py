"""What commands share: options, examples, and JSON. Every `--help` imports this module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import click

from harness.asking import Option, Options

Command = TypeVar("Command", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class FiniteRange(click.FloatRange):
    """Numbers within bounds. NaN is within any that click knows: nothing is below or above it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; a usage error for NaN and what is infinite."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Part(click.ParamType[tuple[int, int]]):
    """`K/N`."""

    name = "K/N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Both numbers."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", str(value))
        if not found:
            self.fail(f"{value} is no part; write 1/2.", param, ctx)
        return int(found[1]), int(found[2])


config_option = click.option("--config", type=PATH, help="TOML file with these options.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress.")


def request_options(*names: str, several: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """These options of a request, or all of them; those in `several` may be repeated."""

    def decorated(function: Command) -> Command:
        for name in reversed(names or tuple(Options.__annotations__)):
            function = request_option(name, several=name in several)(function)
        return function

    return decorated


def request_option(
    name: str, text: str = "", default: Any = None, *, unset: str = "", several: bool = False
) -> Callable[[Command], Command]:
    """One option of a request; a command may have a text and a default of its own.

    What is not given is None, or () of `several`: the request knows its defaults and bounds.
    """
    option: Option = Options.__annotations__[name].__metadata__[0]
    kind = kind_of(name)
    flag = f"--{name.replace('_', '-')}"
    defaults = (default, unset or None, getattr(Options, name), option.unset)
    usual = next(each for each in defaults if each is not None)
    return click.option(
        f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
        name,
        type=kind,
        default=default,
        multiple=several,
        help=f"{text or option.text} {'May be repeated.' if several else f' [default: {usual}]'}",
    )


def kind_of(name: str) -> Any:
    """The type of an option of a request, as click knows it; that it may be left out is no part."""
    kind = get_args(Options.__annotations__[name])[0]
    parts = get_args(kind)
    if NoneType in parts:
        kind, parts = parts[0], get_args(parts[0])
    return click.Choice(parts) if parts else kind


def given(options: Mapping[str, Any], config: Path | None = None) -> dict[str, Any]:
    """What is asked for: options on the command line win over those in a file."""
    written = {name: value for name, value in options.items() if value not in (None, ())}
    if config is None:
        return written
    from harness.asking.request import read_config

    return {**read_config(config), **written}


def print_answer(as_json: bool, values: Any, lines: Iterable[str]) -> None:
    """Print values as JSON where that is asked for, else the lines that people read."""
    import json

    for line in [json.dumps(values)] if as_json else lines:
        click.echo(line)


def print_json(values: Any) -> None:
    """Print values as the one text that stands for them."""
    from harness.store.provenance import canonical_json

    click.echo(canonical_json(values))


def epilog(*examples: str) -> str:
    """The examples at the end of a command's help, each on a line of its own."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExample{'s' if len(examples) > 1 else ''}:\n{lines}"

"""`harness describe`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from harness.cli.options import epilog, json_option, print_answer

TITLES = (
    "formula",
    "members",
    "needs",
    "optional",
    "grants",
    "controls",
    "assets",
    "reference",
    "example",
)


@click.command(
    "describe", epilog=epilog("harness describe unet", "harness describe singmix --dataset cifar10")
)
@click.argument("plugin")
@click.option("--kind", help="Where plugins of two kinds share a name, such as 'spaces'.")
@click.option("--dataset", help="Also say what a defense's own theory predicts on this dataset.")
@click.option("--private-size", type=click.IntRange(min=2), help="Private images to look at.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
def command(
    plugin: str,
    kind: str | None,
    dataset: str | None,
    private_size: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Explain one plugin: its law, options with their bounds, paper and known weaknesses."""
    from harness.description import analysis, description

    facts = description(plugin, kind)
    if dataset:
        facts["analysis"] = analysis(plugin, dataset, private_size, seed)
    print_answer(as_json, facts, _lines(facts))
    if not as_json:
        for table in facts.get("analysis", []):
            _print_table(table)
        if facts.get("analysis") == []:
            click.echo(f"\n'{facts['name']}' has no theory of particular images to print.")


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"{facts['name']} {facts['version']} — {facts['kind']}, {facts['distribution']}"
    yield facts["summary"]
    presets = {
        name: ", ".join(f"{k}={v}" for k, v in values.items()) or "the defaults"
        for name, values in facts["presets"].items()
    }
    parts = {
        **{title: _listed(facts.get(title)) for title in TITLES},
        "options": list(_options(facts["options"])),
        "presets": [f"{name}: {shown}" for name, shown in presets.items()],
        "known weaknesses": [f"- {weakness}" for weakness in facts["weaknesses"]],
    }
    for title, lines in parts.items():
        if lines:
            yield f"\n{title}:"
            yield from (f"  {line}" for line in lines)


def _listed(value: Any) -> list[str]:
    return [*map(str, value)] if isinstance(value, list) else str(value or "").splitlines()


def _options(options: list[dict[str, str]]) -> Iterator[str]:
    for option in options:
        yield f"{option['name']} = {option['default']}  ({option['type']})"
        if option["meaning"]:
            yield f"    {option['meaning']}"


def _print_table(table: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(
        *table["columns"], title=table["title"], box=None, title_justify="left", pad_edge=False
    )
    for row in table["rows"]:
        shown.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    click.echo()
    Console(highlight=False).print(shown)

"""`harness describe`."""

from __future__ import annotations

import json
from typing import Any

import click

from harness.cli.options import epilog, json_option

TITLES = ("formula", "needs", "optional", "grants", "controls", "assets", "reference", "example")


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
    if as_json:
        click.echo(json.dumps(facts))
        return
    _print(facts)


def _print(facts: dict[str, Any]) -> None:
    click.echo(f"{facts['name']} {facts['version']} — {facts['kind']}, {facts['distribution']}")
    click.echo(facts["summary"])
    for title in TITLES:
        if facts.get(title):
            click.echo(f"\n{title}:\n  {_lines(facts[title])}")
    _print_options(facts["options"])
    if facts["presets"]:
        click.echo("\npresets:")
        for name, values in facts["presets"].items():
            shown = ", ".join(f"{k}={v}" for k, v in values.items()) or "the defaults"
            click.echo(f"  {name}: {shown}")
    if facts["weaknesses"]:
        click.echo("\nknown weaknesses:")
        for weakness in facts["weaknesses"]:
            click.echo(f"  - {weakness}")
    for table in facts.get("analysis", []):
        _print_table(table)
    if facts.get("analysis") == []:
        click.echo(f"\n'{facts['name']}' has no theory of particular images to print.")


def _lines(value: Any) -> str:
    if isinstance(value, list):
        return "\n  ".join(str(entry) for entry in value)
    return str(value).replace("\n", "\n  ")


def _print_options(options: list[dict[str, str]]) -> None:
    if not options:
        return
    click.echo("\noptions:")
    for option in options:
        click.echo(f"  {option['name']} = {option['default']}  ({option['type']})")
        if option["meaning"]:
            click.echo(f"      {option['meaning']}")


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

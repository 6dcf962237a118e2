"""`harness describe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import epilog, json_option, print_answer

if TYPE_CHECKING:
    from harness.evaluation import Foreseen

ROUNDS = (1, 10)
"""How often images are released, where ceilings are told of a data set."""
SHOWN = {
    "pooled_snr_db": "dB at most",
    "pooled_snr_db_labels": "with labels",
    "identification": "named at most",
    "epsilon": "epsilon",
}
"""What of ceilings stands in the table, and under which name."""
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
@click.option(
    "--dataset",
    help="Also say what a defense's theory predicts on this dataset, and what no attack exceeds.",
)
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
        facts["ceilings"] = _ceilings(plugin, dataset, private_size, seed, quiet=as_json)
    print_answer(as_json, facts, _lines(facts))
    if not as_json:
        for table in facts.get("analysis", []):
            _print_table(table)
        if facts.get("analysis") == []:
            click.echo(f"\n'{facts['name']}' has no theory of particular images to print.")
        if found := facts.get("ceilings"):
            _print_table(found)
            for reason in found["reasons"]:
                click.echo(f"no ceiling: {reason}")


def _ceilings(
    plugin: str, dataset: str, private_size: int | None, seed: int, *, quiet: bool
) -> dict[str, Any]:
    """What `harness ceiling` says of the defense at several strengths and rounds, in short."""
    from harness.cli.progress import Bars
    from harness.description import with_ceilings
    from harness.evaluation import foresee_ceilings

    asked = {"dataset": dataset, "seed": seed, "private_size": private_size, "preset": "quick"}
    grid = with_ceilings(plugin)
    with Bars(quiet=quiet) as watching:
        found = [*foresee_ceilings(grid, ROUNDS, observer=watching, **_given(asked))]
    return {
        "of": grid,
        "title": f"What no attack exceeds of {grid}: vacuous in brackets, and `harness ceiling` "
        "looks among more",
        "columns": ["defense", "rounds", *SHOWN.values()],
        "rows": list(_rows(found)),
        "reasons": list(dict.fromkeys(each.proof.reason for each in found if each.proof.reason)),
    }


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}


def _rows(found: Iterable[Foreseen]) -> Iterator[list[str | int]]:
    """A row for each cell that any ceiling says something of."""
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for each in found:
        row = cells.setdefault((each.defense, each.rounds), {})
        for name, quantity in each.proof.quantities.items():
            told = f"{quantity.value:.3g}"
            row[name] = f"({told})" if name in each.proof.vacuous else told
    for (defense, rounds), said in cells.items():
        if said:
            yield [_in_short(defense), rounds, *(said.get(name, "–") for name in SHOWN)]


def _in_short(defense: str) -> str:
    """Without the options that a table's title has for all of its rows."""
    from harness.asking.request import parse_one
    from harness.description import NORMAL

    asked = parse_one(defense)
    own = [f"{n}={v}" for n, v in asked.options.items() if (n, v) not in NORMAL.items()]
    return f"{asked.name}[{','.join(own)}]" if own else asked.name


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
    from rich.markup import escape
    from rich.table import Table

    shown = Table(
        *table["columns"],
        title=escape(table["title"]),
        box=None,
        title_justify="left",
        pad_edge=False,
    )
    for row in table["rows"]:
        shown.add_row(*(f"{v:.4g}" if isinstance(v, float) else escape(str(v)) for v in row))
    click.echo()
    Console(highlight=False).print(shown)

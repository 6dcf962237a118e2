"""`harness list`."""

from __future__ import annotations

import click

from harness.cli.options import epilog, json_option

KINDS = ("defenses", "attacks", "datasets", "metrics", "victims", "spaces", "threat_models")


@click.command("list", epilog=epilog("harness list attacks"))
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def command(kind: str | None, as_json: bool) -> None:
    """List what is installed, of one kind or of all."""
    from harness.registry import registry

    known = registry()
    kinds = [kind] if kind else list(KINDS)
    rows = {k: [(spec.name, spec.summary) for spec in known.specs(k)] for k in kinds}
    if as_json:
        _print_json(rows)
        return
    for name, entries in rows.items():
        click.echo(f"{name}:")
        width = max((len(entry) for entry, _ in entries), default=0)
        for entry, summary in entries:
            click.echo(f"  {entry:<{width}}  {summary}")
    if known.problems:
        count = len(known.problems)
        click.echo(f"{count} plugin problem{'s' * (count > 1)}: see `harness doctor`.", err=True)


def _print_json(rows: dict[str, list[tuple[str, str]]]) -> None:
    import json

    named = {
        kind: [{"name": name, "summary": summary} for name, summary in entries]
        for kind, entries in rows.items()
    }
    click.echo(json.dumps(named))

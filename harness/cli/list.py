"""`harness list`."""

from __future__ import annotations

import atexit
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager

import click

from harness.cli.options import epilog, json_option

KINDS = ("defenses", "attacks", "datasets", "metrics", "victims", "spaces", "threat_models")


@click.command("list", epilog=epilog("harness list attacks"))
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def command(kind: str | None, as_json: bool) -> None:
    """List what is installed, of one kind or of all."""
    with _nothing_collected():
        from harness.asking.registry import registry

        known = registry()
    kinds = [kind] if kind else list(KINDS)
    rows = {k: [(spec.name, spec.summary) for spec in known.specs(k)] for k in kinds}
    if as_json:
        named = {k: [{"name": n, "summary": s} for n, s in rows[k]] for k in kinds}
        click.echo(json.dumps(named))
        return
    for name, entries in rows.items():
        click.echo(f"{name}:")
        width = max((len(entry) for entry, _ in entries), default=0)
        for entry, summary in entries:
            click.echo(f"  {entry:<{width}}  {summary}")
    if known.problems:
        count = len(known.problems)
        click.echo(f"{count} plugin problem{'s' * (count > 1)}: see `harness doctor`.", err=True)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No search for garbage while modules are imported, nor at the exit: nothing of them is any.

    It would take a sixth of this command's time.
    """
    collecting = gc.isenabled()
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        if collecting:
            gc.enable()

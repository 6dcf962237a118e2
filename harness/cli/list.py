"""`harness list`."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import click

from harness.cli.options import epilog, json_option, print_answer

KINDS = (
    "defenses",
    "attacks",
    "datasets",
    "metrics",
    "victims",
    "learners",
    "ceilings",
    "spaces",
    "threat_models",
)


@click.command("list", epilog=epilog("harness list attacks"))
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
def command(kind: str | None, as_json: bool) -> None:
    """List what is installed, of one kind or of all."""
    with _nothing_collected():
        from harness.asking.registry import registry

        known = registry()
    kinds = [kind] if kind else list(KINDS)
    found = {k: [{"name": s.name, "summary": s.summary} for s in known.specs(k)] for k in kinds}
    print_answer(as_json, found, _lines(found))
    if known.problems and not as_json:
        count = len(known.problems)
        click.echo(f"{count} plugin problem{'s' * (count > 1)}: see `harness doctor`.", err=True)


def _lines(found: dict[str, list[dict[str, str]]]) -> Iterator[str]:
    for kind, plugins in found.items():
        yield f"{kind}:"
        width = max((len(each["name"]) for each in plugins), default=0)
        yield from (f"  {each['name']:<{width}}  {each['summary']}" for each in plugins)


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

"""`harness check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli.options import FiniteRange, epilog, json_option, print_json, quiet_option

if TYPE_CHECKING:
    from harness.testing.examination import Report

MARKS = {"ok": "ok     ", "failed": "FAILED ", "skipped": "skipped"}
COLOURS = {"ok": "green", "failed": "red", "skipped": "yellow"}


@click.command(
    "check",
    epilog=epilog(
        "harness check singmix",
        'harness check "blur[strength=2]" --only determinism --only secrets',
        "harness check myattack --skip controls --seconds 20 --json",
    ),
)
@click.argument("plugin")
@click.option("--kind", help="Where plugins of two kinds share a name, such as 'spaces'.")
@click.option("--only", multiple=True, metavar="CHECK", help="Ask this check alone.")
@click.option("--skip", multiple=True, metavar="CHECK", help="Leave this check out.")
@click.option(
    "--seconds",
    type=FiniteRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How long the plugin may work on the kit's small images.",
)
@quiet_option
@json_option
def command(
    plugin: str,
    kind: str | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    seconds: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check a plugin against the contract, and say what to fix.

    It is run on small images made for the purpose: of one and three channels, of odd sizes, two
    of them, all of one class, without contrast. What hangs or dies is ended and reported. An
    attack's positive controls are run as `harness control` runs them. Exits 1 if anything must be
    fixed.
    """
    from harness.cli.progress import Bars
    from harness.testing.examination import examine

    with Bars(quiet=quiet or as_json) as watching:
        report = examine(plugin, kind, seconds=seconds, only=only, skip=skip, observer=watching)
    if as_json:
        print_json(report.values())
    else:
        _print(report)
    return 0 if report.passed else 1


def _print(report: Report) -> None:
    """A line for each check, what to fix where one failed, and the verdict."""
    click.echo(f"{report.plugin} {report.version} — {report.kind}, {report.distribution}")
    width = max((len(result.check) for result in report.results), default=0)
    for result in report.results:
        mark = click.style(MARKS[result.verdict], fg=COLOURS[result.verdict])
        click.echo(f"{mark} {result.check:<{width}}  {result.message}")
        if result.fix:
            click.echo(f"{' ' * (9 + width)} fix: {result.fix}")
    failed = len(report.failed)
    skipped = sum(result.verdict == "skipped" for result in report.results)
    left_out = f", {skipped} skipped" if skipped else ""
    verdict = f"{failed} must be fixed" if failed else "nothing to fix"
    click.echo(f"{len(report.results)} checks{left_out}: {verdict}")

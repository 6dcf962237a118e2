"""`harness evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from harness.cli.options import (
    PATH,
    config_option,
    epilog,
    given,
    json_option,
    print_answer,
    quiet_option,
    request_options,
)


@click.command(
    "evaluate",
    epilog=epilog(
        "harness evaluate --defense singmix --attack unet",
        'harness evaluate --defense "singmix[tau=1e-2]" --attack linear --dataset cifar10 --json',
    ),
)
@request_options()
@config_option
@click.option(
    "--owner-key", type=PATH, help="File whose bytes key the owner's secrets; else the seed does."
)
@click.option("--force", metavar="STAGE", help="Run a stage and all after it anew.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what is cached; run nothing.")
@quiet_option
@json_option
def command(
    config: Path | None,
    owner_key: Path | None,
    force: str | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run one attack against one defense and record what leaks.

    Options on the command line win over those in a file. What is stored already is not run again.
    """
    asked = given(options, config)
    asked |= {"owner_key": read_key(owner_key) if owner_key else None, "force": force}
    if dry_run:
        from harness.running.run import dry_run as foresee

        foreseen = foresee(**asked)
        print_answer(as_json, foreseen, _lines(foreseen))
        return 0
    from harness.cli.progress import Bars
    from harness.evaluation import evaluate

    with Bars(quiet=quiet or as_json) as watching:
        record = evaluate(observer=watching, **asked)
    if as_json:
        click.echo(record.json_text())
    else:
        from harness.cli.report import print_report
        from harness.store import cache_root
        from harness.store.record import Records

        print_report(record, Records(cache_root()))
    return 0 if record.status == "ok" else 1


def read_key(path: Path) -> bytes:
    """The owner's secret in a file; UsageError where there is none, or too little of one."""
    from harness.api.errors import UsageError

    try:
        secret = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The owner's key {path} cannot be read: {error.strerror}.") from None
    if len(secret) < 16:
        raise UsageError(f"The owner's key {path} has {len(secret)} bytes; it needs 16 at least.")
    return secret


def _lines(foreseen: dict[str, Any]) -> Iterator[str]:
    """Channels, stages and which of them are stored, in the order of a run."""
    for name, value in foreseen.items():
        several = isinstance(value, dict)
        lines = [f"{k}: {v}" for k, v in value.items()] if several else [value]
        for number, line in enumerate(lines):
            yield f"{'' if number else name:<14} {line}"

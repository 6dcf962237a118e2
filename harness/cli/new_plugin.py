"""`harness new-plugin`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import epilog, json_option, print_answer

if TYPE_CHECKING:
    from harness.authoring import Kind

STAGES = ("encoding", "training", "gradient")


@click.command(
    "new-plugin",
    epilog=epilog(
        "harness new-plugin defense fog",
        "harness new-plugin defense quiet --stage gradient --into ~/plugins",
        "harness new-plugin attack unmix",
        "harness new-plugin learner centroids",
    ),
)
@click.argument("kind", type=click.Choice(["defense", "attack", "learner"]))
@click.argument("name")
@click.option(
    "--stage", type=click.Choice(STAGES), help="Where a defense works.  [default: encoding]"
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="The folder that gets the package's.  [default: the current one]",
)
@json_option
def command(kind: Kind, name: str, stage: str | None, into: Path, as_json: bool) -> None:
    """Write the package of a defense, attack or learner of your own.

    It installs as it is, passes `harness check`, and has one place for the idea: the marked lines
    of `defense.py`, `attack.py` or `learner.py`. A small board of its own lies beside it.
    """
    from harness.api.errors import UsageError
    from harness.authoring import name_plugin, write_package

    if kind != "defense" and stage:
        raise UsageError("--stage says where a defense works; others read what leaves.")
    naming = name_plugin(kind, name)
    chosen = (stage or STAGES[0]) if kind == "defense" else ""
    written = write_package(naming, into, chosen)
    folder = into / naming.distribution
    files = [str(path) for path in written]
    idea = f"Your idea goes into {folder / 'src' / naming.package / kind}.py. Then:"
    then = (f"cd {folder}", "pip install -e . pytest", f"harness check {name}", "pytest")
    lines = [*(f"  {path}" for path in files), idea, *(f"  {line}" for line in then)]
    print_answer(as_json, {"folder": str(folder), "files": files}, lines)

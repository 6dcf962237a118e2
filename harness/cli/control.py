"""`harness control`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    epilog,
    given,
    json_option,
    print_json,
    quiet_option,
    request_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from harness.boards.folder import BoardFolder
    from harness.control import AnyReport, ControlResult, Kind
    from harness.running.run import Observer

ASKED = ("preset", "seed", "device", "threads")
"""Options of `evaluate` that are common to all cells of a control."""

SIGNS = {"higher": "≥ ", "lower": "≤ ", None: ""}


@click.command(
    "control",
    epilog=epilog(
        "harness control linear unet --threads 1",
        'harness control "linear[steps=500]" --json',
        "harness control --kind learners classmeans ridge",
        "harness control --all",
        "harness control --board cifar10-v2",
    ),
)
@click.argument("plugins", nargs=-1, metavar="[ATTACKS]...")
@click.option(
    "--kind",
    type=click.Choice(["attacks", "learners"]),
    default="attacks",
    help="What is named: attacks, or learners.  [default: attacks]",
)
@click.option("--all", "every", is_flag=True, help="Every one that is installed.")
@click.option(
    "--board", help="Every attack and learner of a board, as it is there; reports are kept in it."
)
@request_options(*ASKED)
@quiet_option
@json_option
def command(
    plugins: tuple[str, ...],
    kind: Kind,
    every: bool,
    board: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Check that an attack breaks what it is known to break.

    That an attack fails speaks for a defense only if it succeeds where success is known to be
    possible: in the cells that it declares as its controls. Each is evaluated; what is stored
    already is not run again. Likewise of learners: that one learns nothing of a release says
    something only if it learns where there is something to learn. Exits 1 if any control fails.
    """
    from harness.api.errors import UsageError
    from harness.boards.folder import find_board
    from harness.cli.progress import Bars
    from harness.results.answers import keep_control_cells
    from harness.store import cache_root

    options = given(options)
    folder = find_board(board) if board else None
    if folder:
        if kind != "attacks":
            raise UsageError("A board says which attacks and learners it has: no --kind.")
        chosen, undeclared, options = _of_board(folder, plugins, every, options)
    else:
        texts, undeclared = _chosen(plugins, kind, every, options)
        chosen = [(kind, text) for text in texts]
    reports: list[AnyReport] = []
    for kind_, text in chosen:
        with Bars(quiet=quiet or as_json) as watching:
            report = _ran(text, kind_, watching, options)
        if folder:
            folder.keep_control(report)
        reports.append(report)
        if not as_json:
            _print(report)
    if folder:
        keep_control_cells(folder, cache_root())
    passed = all(report.passed for report in reports)
    if as_json:
        printed = [report.canonical() for report in reports]
        print_json({"passed": passed, "reports": printed, "undeclared": undeclared})
    else:
        for name in undeclared:
            click.echo(f"{name}: no control declared")
    return 0 if passed else 1


def _ran(text: str, kind: Kind, watching: Observer, options: dict[str, Any]) -> AnyReport:
    """All controls of one plugin."""
    from harness.control import run_controls, run_learner_controls

    if kind == "learners":
        return run_learner_controls(text, watching, **options)
    return run_controls(text, watching, **options)


def _of_board(
    folder: BoardFolder, named: tuple[str, ...], every: bool, options: dict[str, Any]
) -> tuple[list[tuple[Kind, str]], list[str], dict[str, Any]]:
    """What of a board declares controls, what does not, by kind and name, and its options."""
    from harness.api.errors import UsageError
    from harness.asking.plan import plan
    from harness.asking.registry import registry
    from harness.asking.request import parse_one
    from harness.boards.cells import cells_of

    if named or every or options:
        raise UsageError("A board says which attacks it has, and how: --board stands alone.")
    asked = [cell.request for cell in cells_of(folder.board)]
    learners = [written for each in asked for written in plan(each, registry()).learners]
    texts: dict[tuple[Kind, str], None] = dict.fromkeys(
        [*(("attacks", each.attack) for each in asked), *(("learners", name) for name in learners)]
    )
    specs = {each: registry().spec(each[0], parse_one(each[1]).name) for each in texts}
    declared = [each for each in texts if specs[each].controls]
    fixed = {k: v for k, v in folder.board.options.items() if k in ASKED}
    return declared, [text for kind, text in texts if (kind, text) not in declared], fixed


def _chosen(
    plugins: tuple[str, ...], kind: Kind, every: bool, options: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Those to run, all of them known to be sound before the first runs; and those without."""
    from harness.api.errors import UsageError
    from harness.asking.registry import registry
    from harness.asking.request import make_request, parse_one
    from harness.control import controlled

    if every == bool(plugins):
        raise UsageError(f"Name {kind}, or say --all: one of the two.")
    if every:
        specs = registry().specs(kind)
        declared = [spec.name for spec in specs if spec.controls]
        return declared, [spec.name for spec in specs if not spec.controls]
    preset = make_request(**options).preset
    other = "learners" if kind == "attacks" else "attacks"
    known = registry().entries
    for text in plugins:
        name = parse_one(text).name
        if name in known[other] and name not in known[kind]:
            raise UsageError(f"'{name}' is one of the {other}: say --kind {other}.")
        controlled(text, preset, kind)
    return list(dict.fromkeys(plugins)), []


def _print(report: AnyReport) -> None:
    """The table of a plugin's controls, why some have no result, and the verdict."""
    from rich.text import Text

    from harness.cli.report import output
    from harness.description import place

    console = output()
    console.print(_table(report.results))
    for result in report.results:
        if result.error:
            console.print(
                Text(f"{place(result.control)}: {result.error}", style="dim"), soft_wrap=True
            )
    console.print(Text(_verdict(report), style="bold" if report.passed else "bold red"))


def _table(results: tuple[ControlResult, ...]) -> Table:
    from rich.text import Text

    from harness.cli.report import table_of
    from harness.description import place

    table = table_of("cell", "metric", "reached", "wanted", "control", "record")
    for result in results:
        interval = f" [{result.ci[0]:.4g}, {result.ci[1]:.4g}]" if result.ci else ""
        row = (
            place(result.control),
            result.control.metric,
            "–" if result.reached is None else f"{result.reached:.4g}{interval}",
            f"{SIGNS[result.leaks_more]}{result.control.at_least:g}",
            _outcome(result),
            result.record[:12] or "–",
        )
        table.add_row(*map(Text, row))
    return table


def _outcome(result: ControlResult) -> str:
    if result.passed:
        return "passed"
    return "failed" if result.status == "ok" else f"failed: {result.status}"


def _verdict(report: AnyReport) -> str:
    failed = sum(not result.passed for result in report.results)
    count = f"{len(report.results)} control{'s' if len(report.results) > 1 else ''}"
    if not failed:
        return f"{report.written} passed {count}: its failures count."
    of = "any defense" if report.kind == "attacks" else "any release"
    return f"{report.written} failed {failed} of {count}: its failures say nothing of {of}."

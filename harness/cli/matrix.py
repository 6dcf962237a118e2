"""`harness matrix`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.evaluate import REQUEST_OPTIONS
from harness.cli.options import epilog, json_option

if TYPE_CHECKING:
    from harness.boards.cells import BoardCell
    from harness.boards.folder import BoardFolder
    from harness.scheduling.matrix import Foreseen
    from harness.store.record import RunRecord

GIVEN = {"defense": str, "attack": str, "dataset": str, "seed": int}
"""Options that may be given several times, each a grid, and what each of them is."""
WORDS = {str: ("a text", "texts"), int: ("a whole number", "whole numbers")}
RECENT = 400
"""So many of the cache's records say what steps take, where no board's do."""


def _options(function: Any) -> Any:
    for name in reversed(list(REQUEST_OPTIONS)):
        kind, text = REQUEST_OPTIONS[name]
        flag = f"--{name.replace('_', '-')}"
        if name in GIVEN:
            plural = f"{text.split('  [')[0]} Several, or grids such as 'mixup[k=2|4]'."
            option = click.option(flag, name, type=kind, multiple=True, help=plural)
        else:
            flag = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
            option = click.option(flag, name, type=kind, default=None, help=text)
        function = option(function)
    return function


@click.command(
    "matrix",
    epilog=epilog(
        "harness matrix --board fashion-v1 --dry-run",
        "harness matrix --board fashion-v1 --workers 2",
        'harness matrix --defense "singmix[tau=1|1e-2|1e-4]" --defense mixup --attack lmmse '
        "--attack linear",
    ),
)
@click.option("--board", help="A board below leaderboards/, or its folder.")
@click.option("--track", "tracks", multiple=True, help="Only these tracks of the board.")
@_options
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with these options.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), help="Local processes.  [default: 1]")
@click.option("--address", help="Of a running Ray cluster.  [default: one on this machine]")
@click.option("--retry", is_flag=True, help="Also run again what failed.")
@click.option("--limit", type=click.IntRange(1), help="At most so many cells, this time.")
@click.option("--dry-run", is_flag=True, help="Show cells, costs and reasons; run nothing.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
def command(
    board: str | None,
    tracks: tuple[str, ...],
    config: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    retry: bool,
    limit: int | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run every defense against every attack, or what a board is missing.

    Releases and trainings are shared. What is stored is not run again; the same command goes on
    where it was stopped. A cell that fails is a record, and is tried again only with --retry.
    With --dry-run, each cell's state: missing (with what it takes, or `later` beyond --limit),
    unavailable (its data is not here), done, failed, or impossible, with the reason. Exits 1 if a
    cell failed.
    """
    from harness.scheduling.matrix import check_here, foresee, to_do
    from harness.store import cache_root

    _check_engine(engine, workers, address)
    folder, cells = _cells(board, tracks, config, options)
    root = cache_root()
    shared = cells if folder else _threaded(cells, engine, workers or 1)
    foreseen = foresee(shared, root, folder, [] if folder else _recent(root))
    missing = to_do(foreseen, retry=retry)[:limit]
    if dry_run:
        print_plan(foreseen, missing, as_json)
        return 0
    check_here(missing)
    from harness.cli.matrix_run import run

    silent = quiet or as_json or not sys.stderr.isatty()
    finished = run(missing, root, folder, engine, workers, address, silent=silent)
    return _print_results(foreseen, finished, as_json)


def _check_engine(engine: str, workers: int | None, address: str | None) -> None:
    from harness.api.errors import UsageError

    if engine == "ray" and workers is not None:
        raise UsageError(
            "--workers is for --engine local: a cluster runs as much as it has room for."
        )
    if engine == "local" and address is not None:
        raise UsageError("--address is for --engine ray: it names a running cluster.")


def _cells(
    board: str | None, tracks: tuple[str, ...], config: Path | None, options: dict[str, Any]
) -> tuple[BoardFolder | None, list[BoardCell]]:
    """Cells of a board, or of grids; a board takes no options, for it fixes them all."""
    from harness.api.errors import UsageError

    given = {k: v for k, v in options.items() if v is not None and v != ()}
    if board is None:
        if tracks:
            raise UsageError("--track is for --board: it names some of a board's tracks.")
        return None, _of_grids(config, given)
    if given or config:
        strange = f"--{next(iter(given), 'config').replace('_', '-')}"
        raise UsageError(f"A board fixes every option: {strange} cannot go with --board.")
    return _of_board(board, tracks)


def _of_grids(config: Path | None, given: dict[str, Any]) -> list[BoardCell]:
    from harness.asking.request import read_config
    from harness.boards.cells import cells_of_grids

    merged = {**(read_config(config) if config else {}), **given}
    grids = {name: _listed(name, merged.pop(name, ())) for name in GIVEN}
    return cells_of_grids(
        grids["defense"], grids["attack"], grids["dataset"], grids["seed"], merged
    )


def _of_board(board: str, tracks: tuple[str, ...]) -> tuple[BoardFolder, list[BoardCell]]:
    """A board and its cells, as frozen; UsageError where what is installed is something else."""
    from harness.api.errors import UsageError, nearest
    from harness.asking.registry import registry
    from harness.boards.cells import cells_of
    from harness.boards.folder import find_board
    from harness.boards.freezing import check_frozen

    folder = find_board(board)
    check_frozen(folder.board, registry())
    known = [track.name for track in folder.board.tracks]
    for name in tracks:
        if name not in known:
            raise UsageError(f"Board '{board}' has no track '{name}'.{nearest(name, known)}")
    return folder, [c for c in cells_of(folder.board) if not tracks or c.track in tracks]


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    """One value or several, each of the kind that the option is; UsageError for another."""
    from harness.api.errors import UsageError

    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for each in found:
        if type(each) is not GIVEN[name]:
            one, several = WORDS[GIVEN[name]]
            raise UsageError(f"{name} is {one}, or a list of {several}, not {each!r}.")
    return found


def _recent(root: Path) -> list[RunRecord]:
    """What was run last; what among it cannot be read is said, and no more."""
    from harness.store.records import Records

    found, faults = Records(root).recent(RECENT)
    for fault in faults:
        click.echo(f"Left out: {fault}", err=True)
    return found


def _threaded(cells: list[BoardCell], engine: str, workers: int) -> list[BoardCell]:
    """Where nobody says how many threads a cell has: cores are divided among processes.

    A cluster runs as many tasks as it has cores.
    """
    from harness.boards.cells import with_threads
    from harness.store.provenance import available_threads

    share = max(1, available_threads() // workers) if engine == "local" else 1
    return [with_threads(cell, share) for cell in cells]


def print_plan(foreseen: Sequence[Foreseen], missing: Sequence[Foreseen], as_json: bool) -> None:
    """A line for each cell, and what the `missing` ones, which would run now, will take."""
    from harness.results.numerals import counted
    from harness.store.canonical import canonical_json

    missing = [each for each in missing if each.state != "impossible"]
    now = {id(each) for each in missing}
    if as_json:
        click.echo(canonical_json([_as_values(each, id(each) in now) for each in foreseen]))
        return
    for each in foreseen:
        cost = _cost_of(each, id(each) in now)
        click.echo(f"{each.state:<11} {cost:>8}  {_cell(each)}{_because(each)}")
    counts = Counter(each.state for each in foreseen)
    click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    click.echo(f"{counted(len(missing), 'cell')} to run{_in_all(missing)}")
    if any(each.lacks for each in missing):
        click.echo("Nothing runs before the data of all of them is here.")


def _in_all(missing: Sequence[Foreseen]) -> str:
    """What cells will take together, where that can be told of most of their steps."""
    from harness.boards.costs import in_words
    from harness.results.numerals import counted
    from harness.scheduling.matrix import FIXED_COSTS, costs_of, graph_of

    costs, steps = costs_of(missing), graph_of(missing).tasks
    if not costs:
        return ""
    known = [cost for cost in costs.values() if cost is not None]
    strange = len(costs) - len(known)
    if not strange:
        return f": about {in_words(sum(known))} of one worker's work"
    unknown = f"{counted(strange, 'step')} whose like was never run"
    judged = sum(steps[n].step not in FIXED_COSTS for n, c in costs.items() if c is not None)
    if strange >= judged:
        return f": {counted(len(costs), 'step')}, among them {unknown}, so nobody knows how long"
    return f": about {in_words(sum(known))} of one worker's work, and {unknown}"


def _as_values(each: Foreseen, now: bool) -> dict[str, Any]:
    return {
        "runs": now,
        "track": each.cell.track,
        "request": each.cell.request.model_dump(mode="json", exclude_defaults=True),
        "state": each.state,
        "reason": each.reason,
        "record": each.record.id if each.record else None,
        "stored": sorted(each.stored),
        "steps": dict(each.seconds),
    }


def _cell(each: Foreseen) -> str:
    return f"{each.cell.track}: {each.cell.title}"


def _because(each: Foreseen) -> str:
    return f": {each.reason}" if each.reason else ""


def _cost_of(each: Foreseen, now: bool) -> str:
    from harness.boards.costs import in_words

    if each.state == "impossible" or (each.settled and not now):
        return ""
    if not now:
        return "later"
    if None in each.seconds.values():
        return "?"
    return in_words(sum(cost or 0.0 for cost in each.seconds.values()))


def _print_results(
    foreseen: Sequence[Foreseen], finished: dict[str, Foreseen], as_json: bool
) -> int:
    from harness.results.brief import brief
    from harness.results.numerals import counted
    from harness.store.canonical import canonical_json

    after = [finished.get(each.tasks[-1].id, each) for each in foreseen]
    records = [each.record for each in after if each.record]
    failed = sum(record.status in ("failed", "timeout") for record in records)
    if as_json:
        click.echo(canonical_json([record.canonical() for record in records]))
        return 1 if failed else 0
    for line in brief(records):
        click.echo(line)
    left = sum(each.record is None for each in after)
    if left:
        click.echo(f"{counted(left, 'cell')} still missing: the same command goes on.")
    return 1 if failed else 0

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
    from harness.matrix import Foreseen

GIVEN = ("defense", "attack", "dataset", "seed")
"""Options that may be given several times, each a grid."""


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
    Exits 1 if a cell failed.
    """
    from harness.matrix import foresee, to_do
    from harness.store import cache_root

    _check_engine(engine, workers, address)
    folder, cells = _cells(board, tracks, config, options)
    root = cache_root()
    shared = cells if folder else _threaded(cells, engine, workers or 1)
    foreseen = foresee(shared, root, folder)
    missing = to_do(foreseen, retry=retry)[:limit]
    if dry_run:
        print_plan(foreseen, as_json)
        return 0
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
    from harness.boards.cells import cells_of_grids
    from harness.request import read_config

    merged = {**(read_config(config) if config else {}), **given}
    defenses, attacks, datasets, seeds = (_listed(merged.pop(name, ())) for name in GIVEN)
    return cells_of_grids(defenses, attacks, datasets, seeds, merged)


def _of_board(board: str, tracks: tuple[str, ...]) -> tuple[BoardFolder, list[BoardCell]]:
    """A board and its cells, as frozen; UsageError where what is installed is something else."""
    from harness.api.errors import UsageError, nearest
    from harness.boards.cells import cells_of
    from harness.boards.folder import find_board
    from harness.boards.freezing import check_frozen
    from harness.registry import registry

    folder = find_board(board)
    check_frozen(folder.board, registry())
    known = [track.name for track in folder.board.tracks]
    for name in tracks:
        if name not in known:
            raise UsageError(f"Board '{board}' has no track '{name}'.{nearest(name, known)}")
    return folder, [c for c in cells_of(folder.board) if not tracks or c.track in tracks]


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _threaded(cells: list[BoardCell], engine: str, workers: int) -> list[BoardCell]:
    """Where nobody says how many threads a cell has: cores are divided among processes.

    A cluster runs as many tasks as it has cores.
    """
    from harness.boards.cells import with_threads
    from harness.provenance import available_threads

    share = max(1, available_threads() // workers) if engine == "local" else 1
    return [with_threads(cell, share) for cell in cells]


def print_plan(foreseen: Sequence[Foreseen], as_json: bool) -> None:
    """A line for each cell with its cost or the reason why it cannot be, and the sum."""
    from harness.boards.costs import in_words
    from harness.keys import canonical_json
    from harness.matrix import costs_of, to_do

    if as_json:
        click.echo(canonical_json([_as_values(each) for each in foreseen]))
        return
    for each in foreseen:
        click.echo(f"{each.state:<10} {_cost_of(each):>8}  {_cell(each)}{_because(each)}")
    costs = costs_of(to_do(foreseen))
    known = [cost for cost in costs.values() if cost is not None]
    counts = Counter(each.state for each in foreseen)
    click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    strange = len(costs) - len(known)
    unknown = f", and {strange} steps whose like was never run" if strange else ""
    click.echo(f"about {in_words(sum(known))} of one worker's work{unknown}")


def _as_values(each: Foreseen) -> dict[str, Any]:
    return {
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


def _cost_of(each: Foreseen) -> str:
    from harness.boards.costs import in_words

    if each.settled or each.state == "impossible":
        return ""
    if None in each.seconds.values():
        return "?"
    return in_words(sum(cost or 0.0 for cost in each.seconds.values()))


def _print_results(
    foreseen: Sequence[Foreseen], finished: dict[str, Foreseen], as_json: bool
) -> int:
    from harness.keys import canonical_json
    from harness.leaderboard.brief import brief

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
        click.echo(f"{left} cells are still missing: the same command goes on.")
    return 1 if failed else 0

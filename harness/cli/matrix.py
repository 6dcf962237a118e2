"""`harness matrix`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    config_option,
    epilog,
    given,
    json_option,
    kind_of,
    print_json,
    quiet_option,
    request_options,
)

if TYPE_CHECKING:
    from harness.boards.cells import BoardCell
    from harness.boards.folder import BoardFolder
    from harness.scheduling.matrix import Engine, Foreseen
    from harness.store.record import RunRecord

GRIDS = ("defense", "attack", "dataset", "seed")
"""Options that may be given several times: every value of one meets every value of the others."""
WORDS = {str: ("a text", "texts"), int: ("a whole number", "whole numbers")}
RECENT = 400
"""So many of the cache's records say what steps take, where no board's do."""


@click.command(
    "matrix",
    epilog=epilog(
        "harness matrix --board cifar10-v2 --dry-run",
        "harness matrix --board cifar10-v2 --workers 2",
        'harness matrix --defense "singmix[tau=1|1e-2|1e-4]" --defense mixup --attack lmmse '
        "--attack linear",
    ),
)
@click.option("--board", help="A board below leaderboards/, or its folder.")
@click.option("--track", "tracks", multiple=True, help="Only these tracks of the board.")
@request_options(several=GRIDS)
@config_option
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--workers", type=click.IntRange(1, 256), help="Local processes.  [default: 1]")
@click.option("--address", help="Of a running Ray cluster.  [default: one on this machine]")
@click.option("--retry", is_flag=True, help="Also run again what failed.")
@click.option("--renew", is_flag=True, help="Also run again what older source made.")
@click.option("--limit", type=click.IntRange(1), help="At most so many cells, this time.")
@click.option("--dry-run", is_flag=True, help="Show cells, costs and reasons; run nothing.")
@quiet_option
@json_option
def command(
    board: str | None,
    tracks: tuple[str, ...],
    config: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    retry: bool,
    renew: bool,
    limit: int | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run every defense against every attack, or what a board is missing.

    A --defense or --attack may itself be a grid, such as 'mixup[k=2|4]'. Releases and trainings are
    shared. What is stored is not run again; the same command goes on where it was stopped. A cell
    that fails is a record, and is tried again only with --retry. A board's cell whose
    versions or options have moved on is run again; of what only an older source made, an open board
    keeps the record, unless --renew is given.
    With --dry-run, each cell's state: missing (with what it takes, or `later` beyond --limit),
    again (versions or options of what its record is made of have moved on), unavailable (its data
    is not here), done, failed, or impossible, with the reason. Exits 1 if a cell failed.
    """
    from harness.api.errors import UsageError
    from harness.scheduling.matrix import check_here, foresee, to_do
    from harness.store import cache_root

    if engine == "ray" and workers is not None:
        raise UsageError(
            "--workers is for --engine local: a cluster runs as much as it has room for."
        )
    if engine == "local" and address is not None:
        raise UsageError("--address is for --engine ray: it names a running cluster.")
    folder, cells = _cells(board, tracks, config, options)
    root = cache_root()
    shared = cells if folder else _threaded(cells, engine, workers or 1)
    foreseen = foresee(shared, root, folder, [] if folder else _recent(root))
    missing = to_do(foreseen, retry=retry, renew=renew)[:limit]
    if dry_run:
        print_plan(foreseen, missing, as_json)
        return 0
    check_here(missing)
    at_work = engine_of(engine, address, workers or 1, missing, root)
    after = run(foreseen, missing, root, folder, at_work, quiet=quiet or as_json)
    return _print_results(after, as_json)


def _cells(
    board: str | None, tracks: tuple[str, ...], config: Path | None, options: dict[str, Any]
) -> tuple[BoardFolder | None, list[BoardCell]]:
    """Cells of a board, or of grids; a board takes no options, for it fixes them all."""
    from harness.api.errors import UsageError
    from harness.boards.cells import cells_of_grids

    if board is None:
        if tracks:
            raise UsageError("--track is for --board: it names some of a board's tracks.")
        asked = given(options, config)
        defenses, attacks, datasets, seeds = (_listed(n, asked.pop(n, ())) for n in GRIDS)
        return None, cells_of_grids(defenses, attacks, datasets, seeds, asked)
    written = given(options)
    if written or config:
        strange = f"--{next(iter(written), 'config').replace('_', '-')}"
        raise UsageError(f"A board fixes every option: {strange} cannot go with --board.")
    return _of_board(board, tracks)


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

    kind = kind_of(name)
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for each in found:
        if type(each) is not kind:
            one, several = WORDS[kind]
            raise UsageError(f"{name} is {one}, or a list of {several}, not {each!r}.")
    return found


def _recent(root: Path) -> list[RunRecord]:
    """What was run last; what among it cannot be read is said, and no more."""
    from harness.store.record import Records

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


@contextmanager
def engine_of(
    name: str, address: str | None, workers: int, missing: Sequence[Foreseen], root: Path
) -> Iterator[Engine]:
    """A Ray cluster, or processes here; UsageError where this machine lacks a device."""
    if name == "ray":
        from harness.scheduling.cluster import Cluster

        with Cluster(address, root) as cluster:
            yield cluster.run
        return
    from harness.running.run import check_machine
    from harness.scheduling.local import Local
    from harness.store.paths import scratch_folder

    accelerators, devices = 0, {each.plan.device for each in missing}
    for device in devices:
        check_machine(device)
    if "cuda" in devices:
        import torch

        accelerators = torch.cuda.device_count()
    with (
        scratch_folder(root, "workers") as logs,
        Local(min(workers, accelerators) or workers, logs, accelerators=accelerators) as local,
    ):
        yield local.run


def run(
    foreseen: Sequence[Foreseen],
    missing: Sequence[Foreseen],
    root: Path,
    folder: BoardFolder | None,
    at_work: AbstractContextManager[Engine],
    *,
    quiet: bool,
) -> list[Foreseen]:
    """Run all that is missing; what was foreseen, with the records that there are now."""
    from harness.cli.progress import LiveTable
    from harness.drawing.gallery import keep_gallery
    from harness.scheduling.matrix import costs_of, fill

    if not missing:
        return list(foreseen)
    finished: dict[str, Foreseen] = {}
    with at_work as engine, LiveTable(missing, costs_of(missing), quiet=quiet) as table:
        for cell, record, task in fill(missing, engine, root, folder, table.told):
            table.ended(task)
            if cell and record:
                finished[task.id] = cell
                keep_gallery(root, folder, record)
                table.settled(cell)
    return [finished.get(each.tasks[-1].id, each) for each in foreseen]


def print_plan(foreseen: Sequence[Foreseen], missing: Sequence[Foreseen], as_json: bool) -> None:
    """A line for each cell, and what the `missing` ones, which would run now, will take.

    What is to run is counted as a board's page counts it: also a cell that cannot be, whose record
    would only say so.
    """
    from harness.boards.answering import AGAIN, MISSING
    from harness.results.numbers import counted

    to_run = counted(len(missing), "cell")
    missing = [each for each in missing if each.state != "impossible"]
    now = {id(each) for each in missing}
    if as_json:
        print_json([_as_values(each, id(each) in now) for each in foreseen])
        return
    for each in foreseen:
        cost = _cost_of(each, id(each) in now)
        because = f": {each.reason}" if each.reason else ""
        click.echo(f"{each.state:<11} {cost:>8}  {each.cell.track}: {each.cell.title}{because}")
    words = {"missing": MISSING, "again": AGAIN}
    counts = Counter(words.get(each.state, each.state) for each in foreseen)
    click.echo(", ".join(f"{count} {state}" for state, count in counts.items()))
    click.echo(f"{to_run} to run{_in_all(missing)}")
    if any(each.lacks for each in missing):
        click.echo("Nothing runs before the data of all of them is here.")


def _in_all(missing: Sequence[Foreseen]) -> str:
    """What cells will take together, where that can be told of most of their steps."""
    from harness.boards.cells import in_words
    from harness.results.numbers import counted
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


def _cost_of(each: Foreseen, now: bool) -> str:
    from harness.boards.cells import in_words

    if each.state == "impossible" or (each.settled and not now):
        return ""
    if not now:
        return "later"
    if None in each.seconds.values():
        return "?"
    return in_words(sum(cost or 0.0 for cost in each.seconds.values()))


def _print_results(after: Sequence[Foreseen], as_json: bool) -> int:
    """Print what every cell has now; the exit code."""
    from harness.results.material import LOST
    from harness.results.numbers import counted
    from harness.results.tables import one_line

    records = [each.record for each in after if each.record]
    if as_json:
        print_json([record.canonical() for record in records])
    else:
        for record in records:
            click.echo(one_line(record))
        left = len(after) - len(records)
        if left:
            click.echo(f"{counted(left, 'cell')} still missing: the same command goes on.")
    return 1 if any(record.status in LOST for record in records) else 0

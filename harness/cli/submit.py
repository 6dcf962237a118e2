"""`harness submit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import PATH, epilog, json_option, print_json, quiet_option

if TYPE_CHECKING:
    from harness.scheduling.matrix import Foreseen
    from harness.submissions.folder import Authorship, Submission
    from harness.submissions.making import Draft


@click.command(
    "submit",
    epilog=epilog(
        'harness submit "blur[strength=1|2]" --board cifar10-v2 --dry-run',
        'harness submit blur --board cifar10-v2 --paper "arXiv:2101.00001" --authors "A. Author" '
        "--license CC-BY-4.0",
    ),
)
@click.argument("what")
@click.option("--board", required=True, help="A board below leaderboards/, or its folder.")
@click.option("--paper", help="Where the method is described: an address, a reference, or none.")
@click.option("--authors", help="Who hands it in.")
@click.option("--license", help="Of the records and reconstructions, such as CC-BY-4.0.")
@click.option("--track", "tracks", multiple=True, help="Tracks of the board.  [default: that fit]")
@click.option("--kind", type=click.Choice(["defense", "attack"]), help="Where a name is both.")
@click.option("--name", help="What to call the submission.  [default: as the plugin]")
@click.option(
    "--out",
    type=PATH,
    help="Folder to write.  [default: submissions/NAME in the board's folder]",
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, help="Processes.  [default: 1]")
@click.option("--retry", is_flag=True, help="Also run again what failed.")
@click.option("--dry-run", is_flag=True, help="Show cells, costs and reasons; run nothing.")
@quiet_option
@json_option
def command(
    what: str,
    board: str,
    paper: str | None,
    authors: str | None,
    license: str | None,
    tracks: tuple[str, ...],
    kind: str | None,
    name: str | None,
    out: Path | None,
    workers: int,
    retry: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run a board's cells for your defense or attack, and write a submission.

    WHAT selects it: a name with its options, perhaps a grid. A defense meets every attack of the
    tracks that release what it guards; an attack meets every defense of the tracks that it can
    read, and its positive controls. The folder holds records, what the attacks returned, and who
    hands it in. The same command goes on where it was stopped. Exits 1 while cells are missing or
    failed.
    """
    from harness.boards.folder import find_board
    from harness.cli.matrix import print_plan
    from harness.scheduling.matrix import to_do
    from harness.store import cache_root
    from harness.submissions.making import ahead, authorship_of, prepare

    draft = prepare(
        what, find_board(board), cache_root(), kind=kind, tracks=tracks, name=name, out=out
    )
    if dry_run:
        foreseen = ahead(draft)
        print_plan(foreseen, to_do(foreseen, retry=retry), as_json)
        return 0
    authorship = authorship_of(draft, {"paper": paper, "authors": authors, "license": license})
    return _run(draft, authorship, workers, retry=retry, quiet=quiet or as_json, as_json=as_json)


def _run(
    draft: Draft,
    authorship: Authorship,
    workers: int,
    *,
    retry: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    from harness.cli.matrix import engine_of, run
    from harness.cli.progress import Bars
    from harness.scheduling.matrix import check_here, to_do
    from harness.submissions.making import adopt, ahead, controls, describe

    foreseen = ahead(draft)
    check_here(to_do(foreseen, retry=retry))
    adopt(draft, foreseen)
    describe(draft, authorship, foreseen)
    missing = to_do(foreseen, retry=retry)
    at_work = engine_of("local", None, workers, missing, draft.root)
    foreseen = run(foreseen, missing, draft.root, draft.folder, at_work, quiet=quiet)
    with Bars(quiet=quiet) as watching:
        control = controls(draft, watching)
    return _print(draft, describe(draft, authorship, foreseen, control), foreseen, as_json)


def _print(draft: Draft, made: Submission, foreseen: list[Foreseen], as_json: bool) -> int:
    from harness.results.material import LOST
    from harness.results.tables import one_line

    records = [each.record for each in foreseen if each.record]
    failed = sum(record.status in LOST for record in records)
    if as_json:
        values = made.model_dump(mode="json", exclude={"schema_"})
        print_json({**values, "folder": str(draft.folder.path), "failed": failed})
    else:
        for record in records:
            click.echo(one_line(record))
        for line in _ending(draft, made, failed):
            click.echo(line)
    return 1 if failed or made.missing else 0


def _ending(draft: Draft, made: Submission, failed: int) -> list[str]:
    from harness.results.numbers import counted

    lines = []
    if made.kind == "attack":
        lines.append(f"controls   {made.control}")
    if failed:
        lines.append(f"{counted(failed, 'cell')} failed: --retry runs what failed again")
    if made.missing:
        lines.append(f"{counted(made.missing, 'cell')} missing: the same command goes on")
    lines.append(f"submission {draft.folder.path} ({counted(len(made.records), 'record')})")
    if not made.missing:
        lines.append(f"check it   harness verify {draft.folder.path}")
    return lines

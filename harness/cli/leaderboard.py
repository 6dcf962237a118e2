"""`harness leaderboard`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import PATH, epilog, json_option, print_answer, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.boards.folder import BoardFolder
    from harness.drawing.publishing import Report
    from harness.results.answers import Keeping
    from harness.results.tables import Format
    from harness.results.view import BoardView


@click.group(
    "leaderboard",
    epilog=epilog(
        "harness leaderboard build cifar10-v2",
        "harness leaderboard check",
        "harness leaderboard export cifar10-v2",
        "harness leaderboard sign cifar10-v2 --key boards.key",
    ),
)
def command() -> None:
    """Build boards' tables and pages from their records, check, export or sign them."""


@command.command(
    "build", epilog=epilog("harness leaderboard build", "harness leaderboard build cifar10-v2")
)
@click.argument("boards", nargs=-1, metavar="[BOARD]...")
@json_option
def build(boards: tuple[str, ...], as_json: bool) -> None:
    """Write README.md, leaderboard.csv, index.html and the picture of boards.

    Without a name: of every board below leaderboards/. The index over them follows either way.
    What is right already is left alone. A board whose records disagree is not built. Of every
    row's strongest attack, what it brought back of up to 32 targets is kept below answers/, where
    this machine's cache has it: at most 6 MB a board, in eight bits a value.
    """
    from harness.boards.answering import lacking
    from harness.cli.progress import Bars
    from harness.drawing.publishing import check_agreement, files_of, write
    from harness.results.answers import keep_answers
    from harness.results.numbers import counted
    from harness.store import cache_root

    folders, views = _folders(boards), []
    with Bars(quiet=as_json) as watching:
        for folder in folders:
            with watching.stage(f"board {folder.path.name}"):
                check_agreement(folder)
                views.append((folder.path, _view(folder)))
    kept = [
        keep_answers(folder, view, cache_root())
        for folder, (_, view) in zip(folders, views, strict=True)
    ]
    written = [path for place, view in views for path in write(place, files_of(view))]
    written += [path for each in kept for path in each.changed if path.exists()]
    written += _indexed(views)
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        click.echo(f"wrote {path}")
    for (_, view), each in zip(views, kept, strict=True):
        ranked = sum(bool(row.rank) for row in view.rows)
        click.echo(
            f"{view.name}: {counted(view.records, 'record')}, {counted(len(view.rows), 'row')}, "
            f"{ranked} ranked, {lacking(view.missing, view.again) or 'every cell run'}"
            f"{_answered(each)}"
        )


def _answered(keeping: Keeping) -> str:
    """Of how many rows the strongest attack's answer is kept, and of how many targets."""
    from harness.results.numbers import counted

    kept, lacking, targets = keeping.kept, keeping.lacking, counted(keeping.targets, "target")
    told = [f"answers of at least {targets} kept for {counted(kept, 'row')}"] if kept else []
    told += [f"the cache lacks answers of {counted(lacking, 'row')}"] if lacking else []
    return "".join(f"; {each}" for each in told)


def _indexed(built: Sequence[tuple[Path, BoardView]]) -> list[Path]:
    """Write the index over all boards below leaderboards/, if one of these lies there."""
    from harness.boards.folder import BOARDS, every_board
    from harness.drawing.publishing import index_of, write

    known = {path.resolve(): view for path, view in built}
    if BOARDS.resolve() not in {path.parent for path in known}:
        return []
    views = [known.get(each.path.resolve()) or _view(each) for each in every_board()]
    return write(BOARDS, index_of(views))


def _folders(boards: tuple[str, ...]) -> list[BoardFolder]:
    """Those that are named, or every one below leaderboards/."""
    from harness.boards.folder import every_board, find_board

    return [find_board(name) for name in boards] if boards else every_board()


def _view(folder: BoardFolder) -> BoardView:
    from harness.results.build import board_view
    from harness.results.material import gathered

    return board_view(gathered(folder))


@command.command(
    "check", epilog=epilog("harness leaderboard check", "harness leaderboard check cifar10-v2")
)
@click.argument("boards", nargs=-1, metavar="[BOARD]...")
@click.option("--complete", is_flag=True, help="A cell without a record is a fault too.")
@json_option
def check(boards: tuple[str, ...], complete: bool, as_json: bool) -> int:
    """Check that boards' records are genuine, and their files what the records give.

    Every record must have the id of its contents, answer a cell of its board, be made with what
    the board froze, sum up its own scores, and agree with those of the same release. An open board
    is held to no frozen list; its older rows are counted. A signature must fit, and no private key
    may lie there. Exits 3 and lists what does not hold.
    """
    from harness.api.errors import EXIT_INTEGRITY
    from harness.boards.folder import BOARDS
    from harness.cli.progress import Bars
    from harness.drawing.publishing import checked, checked_index

    found = []
    with Bars(quiet=as_json) as watching:
        for folder in _folders(boards):
            with watching.stage(f"board {folder.path.name}"):
                found.append(checked(folder))
    reports = [report for report, _ in found]
    if not boards:
        reports.append(checked_index(BOARDS, [view for _, view in found]))
    wrong = any(report.wrong(complete) for report in reports)
    if as_json:
        print_json([asdict(report) for report in reports])
    else:
        _print_reports(reports, complete)
    return EXIT_INTEGRITY if wrong else 0


def _print_reports(reports: Sequence[Report], complete: bool) -> None:
    from harness.boards.answering import lacking
    from harness.boards.signing import signature
    from harness.results.numbers import counted

    for report in reports:
        for fault in report.faults:
            click.echo(f"{report.name}: {fault}")
        verdict = "WRONG" if report.wrong(complete) else "ok"
        held = counted(report.records, "record") if report.records else "its files"
        to_run = lacking(report.missing, report.again)
        missing = f", {to_run}" if to_run else ""
        older = f", {counted(report.older, 'row')} older" if report.older else ""
        stage = ", open" if report.open else ""
        signed = "" if report.signed is None else f", {signature(report.signed)}"
        click.echo(f"{report.name}: {held}{missing}{stage}{older}{signed}: {verdict}")


@command.command(
    "export",
    epilog=epilog(
        "harness leaderboard export cifar10-v2 > cifar10.csv",
        "harness leaderboard export cifar10-v2 --format parquet --out cifar10.parquet",
    ),
)
@click.argument("board")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet", "json"]),
    default="csv",
    show_default=True,
    help="Parquet needs the extra `parquet`.",
)
@click.option("--out", type=PATH, help="Where to write it.  [default: standard output]")
def export(board: str, form: Format, out: Path | None) -> None:
    """Write the scores of a board's records as a table: a row for each record and metric.

    It is the table that `harness.load_board("BOARD")` gives in a notebook: beside the scores stand
    what was evaluated, what was learned, and the rank of the defense. A cell without a record has
    a row too, whose status is `missing`.
    """
    from harness.results.tables import exported, load_board
    from harness.store.paths import write_atomically

    if form == "parquet" and out is None:
        raise click.UsageError("Parquet is no text: say with --out where to write it.")
    data = exported(load_board(board), form)
    if out is None:
        click.echo(data, nl=False)
        return
    write_atomically(out, data)
    click.echo(f"wrote {out}")


@command.command("sign", epilog=epilog("harness leaderboard sign cifar10-v2 --key boards.key"))
@click.argument("board")
@click.option(
    "--key", type=PATH, required=True, help="A file of `harness keygen --signing`, mode 0600."
)
@json_option
def sign(board: str, key: Path, as_json: bool) -> None:
    """Sign a board: its protocol, records, answers and reports, to the byte.

    The signature lies beside them as signature.json, and `harness verify` and `harness leaderboard
    check` say whose it is and whether it fits. It vouches for files and not for numbers: verify
    the board first, with --rerun what is new. The key stays with you, and out of the repository.
    """
    from harness.boards.folder import find_board
    from harness.boards.signing import FILE
    from harness.boards.signing import sign as write

    folder = find_board(board).path
    name = write(folder, key)
    values = {"board": str(folder), "signature": str(folder / FILE), "signed_by": name}
    print_answer(as_json, values, [f"wrote {folder / FILE}, signed by {name}"])


@command.command("freeze", epilog=epilog("harness leaderboard freeze cifar10-v2"))
@click.argument("board")
@json_option
def freeze(board: str, as_json: bool) -> None:
    """Write into a board's file, by content, all that its cells are made of.

    Plugins with their versions and options, metrics, and the data's digests. From then on nobody
    can fill the board with anything else. A board that is open must first be closed: take `stage`
    out of its file.
    """
    from harness.asking.registry import registry
    from harness.boards.folder import find_board
    from harness.boards.freezing import freeze as write

    folder = find_board(board)
    found = write(folder.path, registry())
    if as_json:
        print_json(found)
        return
    for name, digest in found.items():
        click.echo(f"{digest[:12]}  {name}")

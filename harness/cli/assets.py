"""`harness assets`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import epilog, json_option, print_answer

if TYPE_CHECKING:
    from harness.api import Asset
    from harness.assets import FetchReport

NARROWEST = 16
"""Columns that a summary has at least, whatever the terminal."""


def _known() -> dict[str, Asset]:
    from harness.asking.registry import registry

    return registry().assets()


def _asset(name: str) -> Asset:
    from harness.api.errors import UsageError, nearest

    known = _known()
    if name not in known:
        raise UsageError(f"there is no asset '{name}'.{nearest(name, known)}")
    return known[name]


def _row(asset: Asset) -> dict[str, str | float | None]:
    """What `list` says of one asset."""
    from harness.api.errors import AssetUnavailable, IntegrityError
    from harness.assets import locate
    from harness.store import cache_root

    try:
        state, folder = "ready", str(locate(asset, cache_root()))
    except AssetUnavailable:
        state, folder = "not fetched", None
    except IntegrityError:
        state, folder = "damaged", None
    return {
        "name": asset.name,
        "state": state,
        "megabytes": next((s.megabytes for s in asset.sources if s.megabytes), None),
        "licence": asset.licence,
        "summary": asset.summary,
        "folder": folder,
    }


@click.group("assets", epilog=epilog("harness assets list", "harness assets fetch cifar10"))
def command() -> None:
    """List, fetch or find datasets and network weights.

    Everything is verified by hash, wherever it came from.
    """


@command.command("list", epilog=epilog("harness assets list --json"))
@json_option
def list_(as_json: bool) -> None:
    """Say which assets there are, and which are here."""
    rows = [_row(asset) for _, asset in sorted(_known().items())]
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    print_answer(as_json, rows, _lines(rows, width))


def _lines(rows: list[dict[str, Any]], width: int | None) -> Iterator[str]:
    """Columns as wide as what is in them; the last one is folded where a terminal has a `width`."""
    sizes = [f"{row['megabytes']:.0f} MB" if row["megabytes"] else "" for row in rows]
    cells = list(zip([r["name"] for r in rows], [r["state"] for r in rows], sizes, strict=True))
    name, state, size = (max(map(len, column)) for column in zip(*cells, strict=True))
    start = name + state + size + 6
    room = max(width - start, NARROWEST) if width else None
    for (its_name, its_state, its_size), row in zip(cells, rows, strict=True):
        first, *more = wrap(row["summary"], room) if room else [row["summary"]]
        yield f"{its_name:<{name}}  {its_state:<{state}}  {its_size:>{size}}  {first}"
        yield from (f"{'':<{start}}{line}" for line in more)


@command.command("where", epilog=epilog("ls $(harness assets where fashion-mini)"))
@click.argument("name")
@json_option
def where(name: str, as_json: bool) -> None:
    """Print the folder of an asset's verified files."""
    from harness.assets import locate
    from harness.store import cache_root

    folder = str(locate(_asset(name), cache_root()))
    print_answer(as_json, {"name": name, "folder": folder}, [folder])


@command.command("fetch", epilog=epilog("harness assets fetch cifar10 lpips-vgg16"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Fetch again and replace what is here.")
@json_option
def fetch(names: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Get assets from the first source that can be reached.

    What arrives is verified and never executed. A download by URL that was cut off goes on
    where it stopped.
    """
    from harness.assets import fetch as fetch_asset
    from harness.store import cache_root

    reports = []
    for asset in [_asset(name) for name in names]:
        with _bar(asset.name, quiet=as_json) as progress:
            reports.append(fetch_asset(asset, cache_root(), progress, force))
        if not as_json:
            _print_report(reports[-1])
    values = [
        {
            "name": report.asset,
            "folder": str(report.folder),
            "source": report.source,
            "skipped": [asdict(skipped) for skipped in report.skipped],
            "seconds": round(report.seconds, 3),
        }
        for report in reports
    ]
    print_answer(as_json, values, ())


@contextmanager
def _bar(name: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal's stderr, and a line elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from harness.cli.progress import Lines

    Lines(quiet=quiet).say(f"fetch {name}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    silent = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=silent) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _print_report(report: FetchReport) -> None:
    for skipped in report.skipped:
        click.echo(f"{report.asset}: skipped {skipped}", err=True)
    how = f"from {report.source} in {report.seconds:.0f} s" if report.source else "already here"
    click.echo(f"{report.asset}: {how}, verified, {report.folder}")

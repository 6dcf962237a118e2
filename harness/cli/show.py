"""`harness show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import epilog, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.store.record import RunRecord

PICTURE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    "show",
    epilog=epilog(
        "harness show 3f2a91",
        "harness show 3f2a91 77c0de 90ab12 --panel tau.png",
        "harness show 3f2a91 77c0de 90ab12 --plane plane.png --metric ssim",
    ),
)
@click.argument("records", nargs=-1, required=True)
@click.option(
    "--panel",
    type=PICTURE,
    help="Where to draw one target across several records.  [default: panel.png]",
)
@click.option("--target", type=click.IntRange(min=0), help="Which target the panel shows.")
@click.option("--plane", type=PICTURE, help="Where to draw accuracy against leakage.")
@click.option("--metric", help="The leakage of the plane.  [default: snr_db, if scored]")
@json_option
def command(
    records: tuple[str, ...],
    panel: Path | None,
    target: int | None,
    plane: Path | None,
    metric: str | None,
    as_json: bool,
) -> None:
    """Show records again, by id, by the beginning of an id, or by file.

    Several records that differ in their defense's options give a panel: one target, its release
    and its reconstruction in every record. Masks, partners and noise directions are the same
    for one seed, so that only the options differ.

    With --plane, records of one attack give a plot of accuracy against what leaks. Short marks are
    what the best guess without the release reaches, the broken line is the accuracy without
    protection, and squares surround what names its images among candidates. A broad bar beside a
    point goes from the pooled SNR that was reached to its ceiling. Points of one defense
    are joined in the order of the option that differs. Records of several numbers of private
    images, or of accuracy alone, give a curve for each defense over that number instead.
    """
    from harness.cli.report import print_report
    from harness.store import cache_root
    from harness.store.record import Records

    if metric and not plane:
        raise click.UsageError("--metric is for --plane: say where to draw it.")
    if as_json and plane:
        raise click.UsageError("--json prints records and draws nothing; leave out --plane.")
    if target is not None and plane and not panel:
        raise click.UsageError("--target is for --panel: a plane shows no single image.")
    kept = Records(cache_root())
    found = [kept.find(text) for text in records]
    if as_json:
        lines = [record.json_text() for record in found]
        click.echo(lines[0] if len(lines) == 1 else f"[{','.join(lines)}]")
        return
    for record in found:
        print_report(record, kept)
        click.echo()
    if plane:
        _draw_plane(found, metric, plane)
    if panel or (len(found) > 1 and not plane):
        from harness.drawing.gallery import draw_panel

        drawn = draw_panel(kept.root, found, panel or Path("panel.png"), target)
        click.echo(f"panel    {drawn}")


def _draw_plane(found: Sequence[RunRecord], metric: str | None, path: Path) -> None:
    from harness.drawing.curves import has_curves, record_curves
    from harness.drawing.plane import make_plane
    from harness.drawing.png import curves_png, plane_png
    from harness.store.paths import write_atomically

    if has_curves(found):
        if metric:
            raise click.UsageError(
                "--metric is of leakage, and these records give curves of accuracy."
            )
        write_atomically(path, curves_png(record_curves(found)))
    else:
        write_atomically(path, plane_png(make_plane(found, metric)))
    click.echo(f"plane    {path}")

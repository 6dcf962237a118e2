"""`harness release`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    PATH,
    Part,
    config_option,
    epilog,
    given,
    json_option,
    print_answer,
    quiet_option,
    request_option,
    request_options,
)

if TYPE_CHECKING:
    from harness.packages.releasing import Pending
    from harness.packages.statement import Statement


@click.command(
    "release",
    epilog=epilog(
        'harness release --defense "singmix[tau=1e-2,noise=gaussian,radius=40]" '
        '--dataset "folder[path=clinic]" --rounds 20 --owner-key clinic.key --out clinic.release',
        "harness release --like clinic.release --dataset 'folder[path=mine]' --owner-key my.key "
        "--out my.release",
    ),
)
@request_option("defense", "One defense that makes encodings.", unset="singmix")
@request_option("dataset", "Whose images are encoded.")
@request_option(
    "public", "Dataset of public images, for what the law measures on them.", unset="none"
)
@request_option("space")
@request_option("rounds", unset="1")
@request_option("private_size", "Number of images.", unset="all")
@request_option("public_size", "Number of public images.", unset="all of --public")
@request_options("seed", "device", "threads")
@click.option(
    "--part", type=Part(), help="Only every N-th image from the K-th: to try several owners."
)
@click.option("--like", type=PATH, help="A package whose law and preprocessing are taken over.")
@click.option("--party", default="", help="Name of the owner.  [default: the key's fingerprint]")
@click.option("--again", default="", metavar="ID", help="Make a release of the ledger once more.")
@click.option(
    "--new-ledger", is_flag=True, help="The key's ledger is lost: begin one that counts anew."
)
@click.option("--owner-key", type=PATH, required=True, help="File of `harness keygen`.")
@click.option("--out", type=PATH, required=True, help="The package: no file yet.")
@click.option("--dry-run", is_flag=True, help="Say what would leave, and write nothing.")
@click.option("--yes", is_flag=True, help="Agree to what is said of the release.")
@config_option
@quiet_option
@json_option
def command(
    like: Path | None,
    party: str,
    again: str,
    new_ledger: bool,
    owner_key: Path,
    out: Path,
    dry_run: bool,
    yes: bool,
    config: Path | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Encode your images and write a package for a server; nothing is sent.

    A package holds encodings, soft labels, class names, the law with its parameters, and what is
    proven of it. It never holds a key, a weight, a file's name, or an image. Each release has
    randomness of its own, under an id that is drawn anew and written down in the ledger beside the
    key, which counts how often an image was released.
    """
    from harness.api.errors import UsageError
    from harness.cli.progress import Bars
    from harness.packages.keys import read_owner_key
    from harness.packages.package import check_place
    from harness.packages.releasing import Order, prepare

    key = read_owner_key(owner_key)
    check_place(out, 0)
    order = Order(party, _statement(like) if like else None, again, new_ledger)
    with Bars(quiet=quiet or as_json) as watching:
        pending = prepare(key, order, watching, **given(options, config))
        check_place(out, pending.said.size)
        if pending.doubts and not (yes or dry_run):
            raise UsageError(
                f"Nothing was written: {'; '.join(pending.doubts)}. --dry-run shows all that would "
                "leave, and --yes releases it all the same."
            )
        if not as_json:
            for line in _lines(pending):
                click.echo(line)
        said = pending.said if dry_run else pending.write(out, watching)
    size = 0 if dry_run else out.stat().st_size
    done = "nothing was written" if dry_run else f"{out}, {size:,} bytes, {said.release[:16]}…"
    values = {"package": None if dry_run else str(out), "bytes": size, **_values(pending, said)}
    print_answer(as_json, values, [f"package     {done}"])


def _values(pending: Pending, said: Statement) -> dict[str, Any]:
    return {
        "doubts": pending.doubts,
        "notes": pending.notes,
        "found": pending.found.model_dump(mode="json"),
        "said": said.model_dump(mode="json", by_alias=True),
    }


def _statement(path: Path) -> Statement:
    from harness.packages.package import Package

    with Package.open(path) as package:
        return package.said


def _lines(pending: Pending) -> Iterator[str]:
    """What leaves, who learns what of it, what is proven, and what to think about first."""
    from harness.cli.inspect import promise_lines, statement_lines

    yield from statement_lines(pending.said)
    yield (
        "an attacker will know the law with all its parameters, every row's soft label, the number "
        "of images and rounds, and which classes there are"
    )
    if pending.noisy:
        yield "and not: the images, which rows hold which, their weights, order and noise"
    else:
        yield "the law states no noise: whoever finds out how rows were made has images of them"
    yield from promise_lines(pending.found)
    yield from (f"note        {note}" for note in pending.notes)
    yield from (f"WARNING     {doubt}" for doubt in pending.doubts)

"""`harness challenge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.challenge import MEASURES, PACK
from harness.cli.evaluate import REQUEST_OPTIONS, read_key
from harness.cli.options import epilog, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from harness.challenge.pack import Description
    from harness.challenge.scoring import ChallengeScore

FOLDER = click.Path(path_type=Path)
FILE = click.Path(path_type=Path)
ASKED = ("preset", "seconds", "megabytes", "device", "threads")
"""Options of `evaluate` that an attack on a pack has too."""


def _with_text(text: str, *examples: str) -> str:
    """Examples, and below them text whose lines are kept as they are."""
    parts = text.strip().split("\n\n")
    return "\n\n".join([epilog(*examples), *(f"\b\n{part}" for part in parts)])


@click.group(
    "challenge",
    epilog=epilog(
        "harness challenge make --dataset cifar10 --out pack --truth truth.safetensors",
        "harness challenge solve pack --attack carlini --out found.safetensors",
        "harness challenge score pack --truth truth.safetensors --submission found.safetensors",
    ),
)
def command() -> None:
    """Publish encodings as a challenge, attack them, and score what comes in.

    The format is that of the InstaHide challenge: by default 100 private images, each encoded 50
    times. A pack holds encodings, labels and a commitment to the truth, which stays with its
    owner.
    """


@command.command(
    "make",
    epilog=_with_text(
        PACK,
        "harness challenge make --dataset cifar10 --out pack --truth truth.safetensors",
        "harness challenge make --defense 'instahide[k=2]' --rounds 10 --owner-key key.bin "
        "--out pack --truth truth.safetensors",
    ),
)
@click.option(
    "--defense",
    default="instahide[preset=challenge]",
    show_default=True,
    help="One defense of images.",
)
@click.option("--dataset", default="cifar10", show_default=True, help="Whose images are private.")
@click.option("--public", help="Take public images from another dataset.")
@click.option("--private-size", type=int, default=100, show_default=True, help="Private images.")
@click.option("--public-size", type=int, help="Public images at most.  [default: 20000]")
@click.option("--rounds", type=int, default=50, show_default=True, help="Encodings of each image.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the public pool.")
@click.option(
    "--owner-key", type=FILE, help="File whose bytes key all secrets.  [default: a fresh key]"
)
@click.option("--out", type=FOLDER, required=True, help="Where the pack goes: no or empty folder.")
@click.option(
    "--truth", type=FILE, required=True, help="Where the owner's truth goes: no file yet."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
def make(
    owner_key: Path | None, out: Path, truth: Path, quiet: bool, as_json: bool, **options: Any
) -> None:
    """Make a challenge: a pack to publish, and a file with the truth to keep.

    Which images are private, and all that the defense draws, comes from a key that is drawn
    anew each time and kept nowhere. The seed is published with the pack: half of the training
    images are set aside by it, among which the private ones are, and the others are public. To
    make the same challenge again, give --owner-key.
    """
    from harness.challenge.making import Places
    from harness.challenge.making import make as run

    key = read_key(owner_key) if owner_key else None
    given = {name: value for name, value in options.items() if value is not None}
    with _watching(quiet or as_json) as watching:
        described = run(Places(out, truth), key, watching, **given)
    if as_json:
        click.echo(described.model_dump_json())
    else:
        _print_made(described, out, truth, fresh=key is None)


def _print_made(described: Description, out: Path, truth: Path, *, fresh: bool) -> None:
    count, rounds = described.private, described.rounds
    click.echo(f"pack        {out}: {count} private images, {rounds} encodings of each")
    click.echo(f"truth       {truth}: keep it, and keep it to yourself")
    click.echo(f"commitment  {described.commitment}")
    if fresh:
        click.echo(
            "key         drawn for this challenge and forgotten; to be able to make the same "
            "again, use --owner-key"
        )


@command.command(
    "score",
    epilog=_with_text(
        MEASURES,
        "harness challenge score pack --truth truth.safetensors "
        "--submission found.safetensors --json",
    ),
)
@click.argument("pack", type=FOLDER)
@click.option("--truth", type=FILE, required=True, help="The owner's file with the truth.")
@click.option("--submission", type=FILE, required=True, help="What was handed in.")
@json_option
def score(pack: Path, truth: Path, submission: Path, as_json: bool) -> None:
    """Score a submission with the truth.

    The pack's files must have the hashes that it gives, and the truth the hash that it commits
    to; labels, and encodings where nothing random was added to them, are worked out again. If any
    of that does not hold, the exit code is 3. How a submission looks: harness challenge make
    --help.
    """
    from harness.challenge.scoring import score as run

    found = run(pack, truth, submission)
    if as_json:
        click.echo(found.model_dump_json())
    else:
        _print_score(found)


def _print_score(found: ChallengeScore) -> None:
    from rich.console import Console
    from rich.text import Text

    from harness.cli.report import WIDTH

    console = Console(width=None if Console().is_terminal else WIDTH, highlight=False)
    console.print(Text(_heading(found), style="bold"))
    console.print(_table(found))
    for note in found.notes:
        console.print(Text(note, style="dim"), soft_wrap=True)


def _heading(found: ChallengeScore) -> str:
    if found.kind == "decryptions":
        return f"{found.encodings} decryptions"
    how = "matched by the truth" if found.matched else "as named"
    return f"{found.found} of {found.targets} private images, {how}; {found.encodings} encodings"


def _table(found: ChallengeScore) -> Table:
    """The challenge's measures, then the scores image by image."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("measure", "value", "best null", "over"):
        table.add_column(heading, overflow="fold")
    for name, measure in found.measures.items():
        row = (name, f"{measure.value:.4f}", f"{measure.null:.4f} {measure.null_name}")
        table.add_row(*map(Text, (*row, "encodings")))
    for name, score in found.privacy.items():
        value = "–" if score.mean is None else f"{score.mean:.4f}"
        interval = f" [{score.ci[0]:.4f}, {score.ci[1]:.4f}]" if score.ci else ""
        null = "–" if score.null is None else f"{score.null:.4f} {score.null_name}"
        table.add_row(*map(Text, (name, value + interval, null, "images")))
    return table


def _asked_options(function: Any) -> Any:
    for name in reversed(ASKED):
        kind, text = REQUEST_OPTIONS[name]
        function = click.option(f"--{name}", type=kind, default=None, help=text)(function)
    return function


@command.command(
    "solve",
    epilog=epilog("harness challenge solve pack --attack carlini --out found.safetensors"),
)
@click.argument("pack", type=FOLDER)
@click.option("--attack", required=True, help="An attack that needs no more than what is released.")
@click.option("--out", type=FILE, required=True, help="Where the submission goes.")
@_asked_options
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
def solve(pack: Path, attack: str, out: Path, quiet: bool, as_json: bool, **options: Any) -> None:
    """Run one of the harness's attacks on a pack and write its submission.

    The attack works under the threat model 'released': it gets encodings, labels, the defense as
    the pack describes it, the number of private images, and the public images that the pack
    names, for which the dataset must be here. What is stored already is not run again.
    """
    from harness.challenge.solving import solve as run

    given = {name: value for name, value in options.items() if value is not None}
    with _watching(quiet or as_json) as watching:
        diagnostics = run(pack, attack, out, watching, **given)
    if as_json:
        import json

        click.echo(json.dumps({"submission": str(out), "diagnostics": dict(diagnostics)}))
        return
    click.echo(f"submission  {out}")
    for name, value in diagnostics.items():
        click.echo(f"  {name:<28} {value:.4g}")


def _watching(silent: bool) -> Any:
    from harness.cli.progress import observer

    return observer(quiet=silent or not sys.stderr.isatty())

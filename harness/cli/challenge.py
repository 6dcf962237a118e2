"""`harness challenge`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.challenge import MEASURES, PACK
from harness.cli.options import (
    PATH,
    epilog,
    given,
    json_option,
    print_answer,
    quiet_option,
    request_option,
    request_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from harness.challenge.pack import Pack
    from harness.challenge.scoring import ChallengeScore

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
        "harness challenge make --defense 'instahide[k=2]' --rounds 10 --owner-key my.key "
        "--out pack --truth truth.safetensors",
    ),
)
@request_option("defense", "One defense of images.", "instahide[preset=challenge]")
@request_option("dataset", "Whose images are private.", "cifar10")
@request_option("public")
@request_option("private_size", default=100)
@request_option("public_size", "Public images at most.", unset="20000")
@request_option("rounds", default=50)
@request_option("seed", "Seed of the public pool.", 0)
@click.option("--owner-key", type=PATH, help="File of `harness keygen`.  [default: a fresh key]")
@click.option("--out", type=PATH, required=True, help="Where the pack goes: no or empty folder.")
@click.option(
    "--truth", type=PATH, required=True, help="Where the owner's truth goes: no file yet."
)
@quiet_option
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
    from harness.cli.progress import Bars
    from harness.packages.keys import read_owner_key

    key = read_owner_key(owner_key) if owner_key else None
    with Bars(quiet=quiet or as_json) as watching:
        made = run(Places(out, truth), key, watching, **given(options))
    values = made.described.model_dump(mode="json")
    print_answer(as_json, values, _made_lines(made, out, truth, fresh=key is None))


def _made_lines(made: Pack, out: Path, truth: Path, *, fresh: bool) -> Iterator[str]:
    count, rounds = made.said.rows, made.said.rounds
    yield f"pack        {out}: {count} private images, {rounds} encodings of each"
    yield f"truth       {truth}: keep it, and keep it to yourself"
    yield f"commitment  {made.described.commitment}"
    if fresh:
        yield (
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
@click.argument("pack", type=PATH)
@click.option("--truth", type=PATH, required=True, help="The owner's file with the truth.")
@click.option("--submission", type=PATH, required=True, help="What was handed in.")
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
    from rich.text import Text

    from harness.cli.report import output

    console, how = output(), "matched by the truth" if found.matched else "as named"
    heading = f"{found.found} of {found.targets} private images, {how}; {found.encodings} encodings"
    if found.kind == "decryptions":
        heading = f"{found.encodings} decryptions"
    console.print(Text(heading, style="bold"))
    console.print(_table(found))
    for note in found.notes:
        console.print(Text(note, style="dim"), soft_wrap=True)


def _table(found: ChallengeScore) -> Table:
    """The challenge's measures, then the scores image by image."""
    from rich.text import Text

    from harness.cli.report import table_of

    table = table_of("measure", "value", "best null", "over")
    for name, measure in found.measures.items():
        row = (name, f"{measure.value:.4f}", f"{measure.null:.4f} {measure.null_name}")
        table.add_row(*map(Text, (*row, "encodings")))
    for name, score in found.privacy.items():
        value = "–" if score.mean is None else f"{score.mean:.4f}"
        interval = f" [{score.ci[0]:.4f}, {score.ci[1]:.4f}]" if score.ci else ""
        null = "–" if score.null is None else f"{score.null:.4f} {score.null_name}"
        table.add_row(*map(Text, (name, value + interval, null, "images")))
    return table


@command.command(
    "solve",
    epilog=epilog("harness challenge solve pack --attack carlini --out found.safetensors"),
)
@click.argument("pack", type=PATH)
@click.option("--attack", required=True, help="An attack that needs no more than what is released.")
@click.option("--out", type=PATH, required=True, help="Where the submission goes.")
@request_options(*ASKED)
@quiet_option
@json_option
def solve(pack: Path, attack: str, out: Path, quiet: bool, as_json: bool, **options: Any) -> None:
    """Run one of the harness's attacks on a pack and write its submission.

    The attack works under the threat model 'released': it gets encodings, labels, the defense as
    the pack describes it, the number of private images, and the public images that the pack
    names, for which the dataset must be here. What is stored already is not run again.
    """
    from harness.challenge.solving import solve as run
    from harness.cli.progress import Bars

    with Bars(quiet=quiet or as_json) as watching:
        diagnostics = run(pack, attack, out, watching, **given(options))
    lines = (f"  {name:<28} {value:.4g}" for name, value in diagnostics.items())
    values = {"submission": str(out), "diagnostics": dict(diagnostics)}
    print_answer(as_json, values, [f"submission  {out}", *lines])

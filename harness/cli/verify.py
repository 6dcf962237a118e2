"""`harness verify`."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import click

from harness.cli.options import epilog, json_option, print_json

if TYPE_CHECKING:
    from harness.submissions.checks import Verdict


@click.command(
    "verify",
    epilog=epilog(
        "harness verify cifar10-v2",
        "harness verify leaderboards --no-judge --quiet",
        "harness verify leaderboards/cifar10-v2/submissions/blur",
        "harness verify leaderboards/cifar10-v2/records/3f2a91….json --rerun",
    ),
)
@click.argument("paths", nargs=-1, required=True)
@click.option("--rerun", is_flag=True, help="Also run cells again, in a fresh cache.")
@click.option("--no-judge", is_flag=True, help="Judge no stored reconstruction again.")
@click.option("--board", help="The board of a submission that does not lie in it.")
@click.option("-q", "--quiet", is_flag=True, help="Name only what is not ok, and no progress.")
@json_option
def command(
    paths: tuple[str, ...],
    rerun: bool,
    no_judge: bool,
    board: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Verify records, folders of records, boards and submissions.

    Hashes, schema, membership of the board, numbers that have to follow from the scores by image,
    and records of one release that have to agree on it, on what was learned and on guesses: a
    record that holds is consistent. Answers that are kept are judged again, without running the
    plugin: numbers may move by a thousandth, or 0.01 dB, between machines. With --rerun every cell
    is run again: the same to the bit, within its intervals, or outside.

    Exits 0 if all holds, 1 if something differs or cannot be checked, 2 for bad input, 3 if
    something is not what its hash says, or contradicts itself.
    """
    from harness.cli.progress import Bars
    from harness.store import cache_root
    from harness.submissions.checks import exit_code, worst
    from harness.submissions.verification import Verifier

    found = []
    with (
        Bars(quiet=quiet or as_json) as watching,
        Verifier(cache_root(), not no_judge, rerun, board, watching) as verifier,
    ):
        of_paths = (verdict for path in paths for verdict in verifier.verify(path))
        for verdict in chain(of_paths, verifier.together()):
            found.append(verdict)
            if not (as_json or (quiet and verdict.outcome == "ok")):
                _print(verdict)
    if as_json:
        outcome = worst(verdict.outcome for verdict in found)
        verdicts = [verdict.model_dump(mode="json") for verdict in found]
        print_json({"outcome": outcome, "verdicts": verdicts})
    elif not quiet:
        counts = Counter(map(_word, found))
        click.echo(", ".join(f"{count} {word}" for word, count in counts.items()))
    return exit_code(found)


def _word(verdict: Verdict) -> str:
    """How far a thing was verified and held; else what came of it."""
    return verdict.depth if verdict.outcome == "ok" and verdict.depth else verdict.outcome


def _print(verdict: Verdict) -> None:
    path = verdict.path.rpartition("/")[2]
    name = path[:12] if verdict.what == "record" else path
    notes = "; ".join(verdict.notes)
    line = f"{_word(verdict):<12} {verdict.what:<10} {name:<12}  {verdict.title}"
    click.echo(f"{line}{': ' if verdict.title and notes else ''}{notes}".rstrip())

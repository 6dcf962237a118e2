"""`harness verify`."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.api.errors import UsageError
from harness.cli.options import PATH, epilog, json_option, print_json

if TYPE_CHECKING:
    from harness.submissions.checks import Verdict
    from harness.submissions.hidden import Hidden


@click.command(
    "verify",
    epilog=epilog(
        "harness verify cifar10-v2",
        "harness verify leaderboards --no-judge --quiet",
        "harness verify leaderboards/cifar10-v2/submissions/blur",
        "harness verify leaderboards/cifar10-v2/records/3f2a91….json --rerun",
        "harness verify leaderboards/cifar10-v2/submissions/blur --rerun --secret",
    ),
)
@click.argument("paths", nargs=-1, required=True)
@click.option("--rerun", is_flag=True, help="Also run cells again, in a fresh cache.")
@click.option(
    "--secret",
    is_flag=True,
    help="With --rerun: on other images and with a key that are drawn now, and never told.",
)
@click.option(
    "--keep-secret",
    type=PATH,
    help="Keep what --secret draws in this new file; one that is there is used again.",
)
@click.option("--no-judge", is_flag=True, help="Judge no stored reconstruction again.")
@click.option("--board", help="The board of a submission that does not lie in it.")
@click.option("-q", "--quiet", is_flag=True, help="Name only what is not ok, and no progress.")
@json_option
def command(
    paths: tuple[str, ...],
    rerun: bool,
    secret: bool,
    keep_secret: Path | None,
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

    With --rerun --secret the splits and the owner's key are drawn now from the operating system,
    private and test images outside the published split as far as the dataset has more. A record
    differs where its gain, identification or accuracy falls by more than both intervals, where a
    result is too good to be true, or where rows are not the mixture and noise that the defense
    states, or are public images. Nothing of the secret is printed but a hash. Whoever has the whole
    dataset is not found out by other images of it.

    Exits 0 if all holds, 1 if something differs or cannot be checked, 2 for bad input, 3 if
    something is not what its hash says, or contradicts itself.
    """
    from harness.cli.progress import Bars
    from harness.store import cache_root
    from harness.submissions.checks import exit_code, worst
    from harness.submissions.verification import Verifier

    hidden = _hidden(secret=secret, rerun=rerun, keep=keep_secret)
    found = []
    with (
        Bars(quiet=quiet or as_json) as watching,
        Verifier(cache_root(), not no_judge, rerun, board, hidden, watching) as verifier,
    ):
        of_paths = (verdict for path in paths for verdict in verifier.verify(path))
        for verdict in chain(of_paths, verifier.together()):
            found.append(verdict)
            if not (as_json or (quiet and verdict.outcome == "ok")):
                _print(verdict)
    if as_json:
        outcome = worst(verdict.outcome for verdict in found)
        verdicts = [verdict.model_dump(mode="json") for verdict in found]
        commitment = {"commitment": hidden.commitment} if hidden else {}
        print_json({"outcome": outcome, **commitment, "verdicts": verdicts})
    elif not quiet:
        counts = Counter(map(_word, found))
        click.echo(", ".join(f"{count} {word}" for word, count in counts.items()))
    return exit_code(found)


def _hidden(*, secret: bool, rerun: bool, keep: Path | None) -> Hidden | None:
    """What hidden reruns are drawn from, if any were asked for; kept where that was asked for."""
    from harness.submissions.hidden import Hidden

    if (secret and not rerun) or (keep and not secret):
        raise UsageError("--keep-secret needs --secret, and that needs --rerun.")
    if not secret:
        return None
    if keep is None:
        return Hidden()
    from harness.packages.keys import make_key, read_owner_key
    from harness.store.paths import disk_errors

    with disk_errors(keep):
        there = keep.exists()
    return Hidden((read_owner_key if there else make_key)(keep).secret)


def _word(verdict: Verdict) -> str:
    """How far a thing was verified and held; else what came of it."""
    return verdict.depth if verdict.outcome == "ok" and verdict.depth else verdict.outcome


def _print(verdict: Verdict) -> None:
    path = verdict.path.rpartition("/")[2]
    name = path[:12] if verdict.what == "record" else path
    notes = "; ".join(verdict.notes)
    line = f"{_word(verdict):<12} {verdict.what:<10} {name:<12}  {verdict.title}"
    click.echo(f"{line}{': ' if verdict.title and notes else ''}{notes}".rstrip())

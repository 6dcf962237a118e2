"""`harness learn`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import (
    PATH,
    epilog,
    json_option,
    print_answer,
    quiet_option,
    request_option,
)

if TYPE_CHECKING:
    from harness.packages.learning import Done


@click.command(
    "learn",
    epilog=epilog(
        "harness learn a.release b.release --out model",
        "harness learn a.release b.release --learner ridge --public fashion --test fashion "
        "--out model --onnx",
    ),
)
@click.argument("paths", metavar="PACKAGE...", nargs=-1, required=True, type=PATH)
@request_option(
    "learner", "A learner such as 'ridge[components=256]', or with --test a set.", "classmeans"
)
@request_option("victim", "Network that the learner 'network' trains, with its recipe.", "cnn")
@request_option("public", "Dataset of public images, which many learners need.", unset="none")
@click.option("--test", help="Dataset whose test images the model is tried on.")
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Only the first so many.  [default: all]"
)
@request_option("seed", "Seed of the learner's own randomness.", 0)
@click.option("--out", type=PATH, required=True, help="Folder of the model: not there yet.")
@click.option("--onnx", is_flag=True, help="Write the model for ONNX's runtimes too.")
@quiet_option
@json_option
def command(
    paths: tuple[Path, ...],
    learner: str,
    victim: str,
    public: str | None,
    test: str | None,
    rounds: int | None,
    seed: int,
    out: Path,
    onnx: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Join packages, learn from them, and write a model.

    Packages have to be of one law, one space and one preprocessing (`harness release --like`);
    their owners and keys differ. Classes are merged by name. Every byte is checked before anything
    is learned. The model is a folder: tensors, what is done with them, and what images go through.
    Of a set such as 'standard' the learner counts that is best on half of the --test images; its
    accuracy is that on the other half.

    What a learner made is stored as soon as it ends, so that a command that was stopped, given
    again, goes on with the next one.
    """
    from harness.cli.progress import Bars
    from harness.packages.learning import Plan, learn

    asked = Plan(learner, victim, public, test, rounds, seed, onnx)
    with Bars(quiet=quiet or as_json) as watching:
        done = learn(paths, asked, out, watching)
    values = {
        "model": str(out),
        "classes": done.described.classes,
        "learned": done.described.learned.model_dump(mode="json"),
        "notes": done.notes,
        "stored": done.stored,
    }
    print_answer(as_json, values, _lines(out, done))


def _lines(out: Path, done: Done) -> Iterator[str]:
    learned = done.described.learned
    count = len(learned.packages)
    yield (
        f"model     {out}: {learned.learner.name} from {learned.rounds} rounds of {learned.rows} "
        f"encodings in {count} package{'s' if count > 1 else ''}, {len(done.described.classes)} "
        "classes"
    )
    if learned.accuracy is not None and learned.interval is not None:
        low, high = learned.interval
        yield f"accuracy  {learned.accuracy:.4f} [{low:.4f}, {high:.4f}] on {learned.test}"
    for name, share in learned.validation.items():
        yield f"tried     {name}: {share:.4f} on the half to choose by"
    if done.stored:
        yield f"stored    {', '.join(done.stored)}: learned by an earlier command"
    yield from (f"note      {note}" for note in done.notes)

"""`harness inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import PATH, epilog, json_option, print_answer, quiet_option

if TYPE_CHECKING:
    from harness.packages.statement import Promise, Statement


@click.command(
    "inspect",
    epilog=epilog("harness inspect clinic.release", "harness inspect clinic.release --json"),
)
@click.argument("path", metavar="PACKAGE", type=PATH)
@quiet_option
@json_option
def command(path: Path, quiet: bool, as_json: bool) -> None:
    """Say what a package holds and promises, and check every byte of it.

    Exits 2 where the file is no package, 3 where it was changed. Hashes tell damage, not who made
    it: whoever changes a package on purpose can give it new ones.
    """
    from harness.cli.progress import Bars
    from harness.packages.package import Package

    with Package.open(path) as package, Bars(quiet=quiet or as_json) as watching:
        with watching.stage("check") as progress:
            package.check(progress)
        said = package.said
    lines = [
        *statement_lines(said),
        *promise_lines(said.promise, "its owner states"),
        "intact      every hash holds",
    ]
    print_answer(as_json, said.model_dump(mode="json", by_alias=True), lines)


def statement_lines(said: Statement) -> Iterator[str]:
    """What a package holds."""
    from harness.packages.package import in_bytes
    from harness.packages.samples import written

    steps = said.preprocessing
    yield f"release     {said.release[:16]}… of {said.party}, {said.made}, harness {said.version}"
    yield f"law         {written(said.law)}, version {said.law.version}"
    yield (
        f"leaves      {in_bytes(said.size)}: {said.rounds} rounds of {said.rows} encodings "
        f"{_shape(said.shape)} with soft labels of {len(said.classes)} classes"
    )
    yield f"classes     {', '.join(said.classes)}"
    yield (
        f"images      {_shape(steps.image)} in the space {written(steps.space)}, standardised by "
        f"{_numbers(steps.mean)} and {_numbers(steps.std)}"
    )
    yield f"randomness  {said.randomness.generator}; {said.randomness.arithmetic}"


def promise_lines(promise: Promise, who: str = "proven") -> Iterator[str]:
    """What is proven; of a package that is read, nobody checked more than that it is stated."""
    from harness.cli.ceiling import proof_lines

    if not promise.ceilings:
        yield "nothing is promised of what leaks"
        return
    yield f"{who} of any one image in {promise.rounds} rounds, all that are counted:"
    for name, proof in promise.ceilings.items():
        yield from (f"  {name}: {line}" for line in proof_lines(proof))
    assumed = dict.fromkeys(text for p in promise.ceilings.values() for text in p.assumptions)
    yield from (f"  assumed: {text}" for text in assumed)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _numbers(values: tuple[float, ...]) -> str:
    shown = ", ".join(f"{value:.4g}" for value in values[:3])
    return f"{shown}, …" if len(values) > 3 else shown

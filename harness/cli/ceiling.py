"""`harness ceiling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    PATH,
    config_option,
    epilog,
    given,
    json_option,
    quiet_option,
    request_option,
    request_options,
)

if TYPE_CHECKING:
    from harness.evaluation import Foreseen
    from harness.scoring.ceilings import Proof, Proven

ASKED = ("public", "space", "private_size", "public_size", "targets", "seed", "device", "threads")


@click.command(
    "ceiling",
    epilog=epilog(
        'harness ceiling --defense "singmix[tau=1e-2,noise=gaussian,calibrate=public]" '
        "--dataset cifar10",
        'harness ceiling --defense "singmix[tau=1e-2|1e-3|1e-4,noise=gaussian,calibrate=public]" '
        "--rounds 1 --rounds 10 --dataset cifar10 --json",
    ),
)
@request_option("defense", "Defense; values with | between them are tried in turn.")
@request_option("dataset")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1,),
    show_default=True,
    help="How often each image is encoded and released. May be repeated.",
)
@click.option(
    "--ceiling",
    "ceilings",
    multiple=True,
    help="Ceiling, such as 'dp[delta=1e-6]'. May be repeated.  [default: all that there are]",
)
@request_option("preset", default="standard")
@request_options(*ASKED)
@config_option
@click.option(
    "--owner-key", type=PATH, help="File whose bytes key the owner's secrets; else the seed does."
)
@quiet_option
@json_option
def command(
    defense: str | None,
    rounds: tuple[int, ...],
    ceilings: tuple[str, ...],
    config: Path | None,
    owner_key: Path | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Say what no attack exceeds, from the law of a defense, before any attack is run.

    Pooled SNR, identification and the share of images had, for whoever looks for the target among
    images drawn like it; and what differential privacy says where the noise is normal. Where the
    law has no ceiling, the reason stands instead. Encodings are made for their weights and
    partners, and let go. Exits 2 where a ceiling that is asked for by name proves nothing.
    """
    from harness.asking.request import make_request
    from harness.cli.evaluate import read_key
    from harness.cli.progress import Bars
    from harness.evaluation import foresee_ceilings

    asked = given({"defense": defense, **options}, config)
    text = asked.pop("defense", make_request().defense)
    asked.pop("rounds", None)
    secret = read_key(owner_key) if owner_key else None
    with Bars(quiet=quiet or as_json) as watching:
        found = list(
            foresee_ceilings(
                text, rounds, ceilings=ceilings, observer=watching, owner_key=secret, **asked
            )
        )
    if as_json:
        from harness.cli.options import print_json

        print_json([_values(each) for each in found])
    else:
        for line in _lines(found):
            click.echo(line)
    return 0


def _values(found: Foreseen) -> dict[str, Any]:
    return {
        "defense": found.defense,
        "rounds": found.rounds,
        "ceiling": found.ceiling,
        **found.proof.model_dump(mode="json", exclude={"reached"}),
    }


def _lines(found: Sequence[Foreseen]) -> Iterator[str]:
    """Each cell's numbers, or why there are none; then what they all assume."""
    for each in found:
        rounds = "1 round" if each.rounds == 1 else f"{each.rounds} rounds"
        yield f"{each.defense}, {rounds}: {each.ceiling}"
        yield from (f"  {line}" for line in proof_lines(each.proof))
    assumed = dict.fromkeys(text for each in found for text in each.proof.assumptions)
    if assumed:
        yield "assumed, and what is bounded:"
        yield from (f"  - {text}" for text in assumed)


def proof_lines(proof: Proof) -> Iterator[str]:
    """What one ceiling says of one release, without its assumptions."""
    if proof.reason:
        yield f"no ceiling: {proof.reason}"
    width = max((len(name) for name in proof.quantities), default=0)
    for name, quantity in proof.quantities.items():
        yield f"{name:<{width}}  {_number(quantity)}"
    for table in proof.tables:
        yield f"{table.title}:"
        for row in table.rows:
            yield "  " + "  ".join(
                f"{column} {value:.4g}" if isinstance(value, float) else f"{column} {value}"
                for column, value in zip(table.columns, row, strict=True)
            )
    yield from (f"note: {note}" for note in proof.notes)


def _number(quantity: Proven) -> str:
    interval = ""
    if quantity.interval:
        low, high = quantity.interval
        interval = f" [{low:.3g}, {high:.3g}]"
    detail = f"  ({quantity.detail})" if quantity.detail else ""
    return f"{quantity.value:.4g}{interval}{detail}"

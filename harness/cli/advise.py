"""`harness advise`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from harness.cli.options import FiniteRange, epilog, json_option

if TYPE_CHECKING:
    from harness.advice import Advice, Offer

SUPPOSED = "informed"
"""The attacker where nobody says who it is."""
CAUTION = (
    "These are the strongest attacks that ran. None of this calls a defense safe: a better attack "
    "may come, and what was released stays released."
)


@click.command(
    "advise",
    epilog=epilog(
        "harness advise --dataset cifar10 --min-accuracy 0.4 --attacker released",
        "harness advise --dataset cifar10 --min-accuracy 0.3 --board cifar10-v2 --json",
    ),
)
@click.option("--dataset", required=True, help="Dataset that is like yours.")
@click.option(
    "--min-accuracy",
    type=FiniteRange(0, 1),
    required=True,
    help="What the trained model must reach, as a share.",
)
@click.option(
    "--attacker",
    help="A threat model: what it knows, and no more.  [default: informed, and perhaps a list of "
    "candidates]",
)
@click.option("--board", "boards", multiple=True, help="Only this board.  [default: all here]")
@click.option("--metric", help="What leakage is measured by.  [default: the boards' first]")
@json_option
def command(
    dataset: str,
    min_accuracy: float,
    attacker: str | None,
    boards: tuple[str, ...],
    metric: str | None,
    as_json: bool,
) -> int:
    """Say which defenses keep an accuracy, and what the strongest attack got from each.

    From the boards here: of the defenses whose accuracy surely is what you ask for, those that none
    of them beats. Counted are attacks that need no more than the attacker holds. Exits 1 where
    nothing can be recommended: no defense qualifies, or flags, failed controls or missing attacks
    make the numbers unsafe to rely on, or images are named among candidates. The latter is only a
    warning where --attacker says that this attacker has no such list.
    """
    from harness.advice import Wish, advise
    from harness.api.errors import UsageError
    from harness.asking.registry import registry
    from harness.boards.folder import every_board, find_board
    from harness.results.material import gathered

    folders = [find_board(name) for name in boards] if boards else every_board()
    supposed = attacker or SUPPOSED
    model = registry().spec("threat_models", supposed)
    if not model.ranked:
        raise UsageError(f"'{supposed}' is handed the truth: no defense holds against it.")
    grants, named = frozenset(map(str, model.grants)), attacker is not None
    wish = Wish(dataset, min_accuracy, supposed, grants, metric, named)
    advice = advise([gathered(folder) for folder in folders], wish)
    if as_json:
        click.echo(advice.model_dump_json())
    else:
        for line in _lines(advice):
            click.echo(line)
    return 0 if advice.recommended else 1


def _lines(advice: Advice) -> Iterator[str]:
    for offer in advice.recommended:
        yield from _offer(offer)
    if advice.refusal:
        yield advice.refusal
    for offer in advice.doubtful:
        yield from _offer(offer, "not recommended: ")
        for doubt in offer.doubts:
            yield f"  {doubt.name}: {doubt.message}"
    yield CAUTION


def _offer(offer: Offer, before: str = "") -> Iterator[str]:
    from harness.results.numbers import gained, metric_name, share

    yield f"{before}{offer.defense}  ({offer.board}: {offer.title})"
    kept = f", {share(offer.retained)} of that without protection" if offer.retained else ""
    yield f"  accuracy {share(offer.accuracy)}{kept}"
    if offer.leak:
        name = metric_name(offer.leak.metric)
        yield (
            f"  {offer.leak.strongest} got most: {name} {gained(offer.leak)} over the best guess"
        )
    yield f"  {offer.attacks} of {offer.of} attacks need no more than this attacker knows"
    for warning in offer.warnings:
        yield f"  WARNING {warning.name}: {warning.message}"

"""`harness advise`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from harness.cli.options import FiniteRange, epilog, json_option

if TYPE_CHECKING:
    from harness.advice import Advice, Offer
    from harness.results.view import Notice

SUPPOSED = "informed"
"""The attacker where nobody says who it is."""
KNOW = "need no more than this attacker knows"
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
@click.option("--board", "boards", multiple=True, help="Only this board.  [default: all]")
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

    From the boards here and those that came with the package: of the defenses whose accuracy surely
    is what you ask for, those that none of them beats, by what is released. Counted are attacks
    that need no more than the attacker holds. Exits 1 where nothing can be recommended: no defense
    qualifies, or flags, failed controls or missing attacks make the numbers unsafe to rely on, or
    images are named among candidates. The latter is only a warning where --attacker says that this
    attacker has no such list.
    """
    from harness.advice import Wish, advise
    from harness.api.errors import UsageError
    from harness.asking.registry import registry
    from harness.boards.folder import every_board, find_board
    from harness.results.material import gathered

    named_ones = [find_board(name, shipped=True) for name in boards]
    folders = named_ones or every_board(shipped=True)
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
    """Offers by what is released: numbers of different releases say nothing of each other."""
    if advice.refusal:
        yield advice.refusal
    offers = (*advice.recommended, *advice.doubtful)
    for released in dict.fromkeys(offer.released for offer in offers):
        yield from _group(released, [offer for offer in offers if offer.released == released])
    yield CAUTION


def _group(released: str, offers: Sequence[Offer]) -> Iterator[str]:
    """What is the same of all of them is said once: where they are from, and what is against."""
    places = dict.fromkeys(f"{offer.board}: {offer.title}" for offer in offers)
    met = dict.fromkeys(f"{offer.attacks} of {offer.of} attacks {KNOW}" for offer in offers)
    yield ""
    yield f"released: {released}  ({'; '.join(places)})"
    for offer in offers:
        yield from _offer(offer, f"  ({offer.board}: {offer.title})" if len(places) > 1 else "")
        if len(met) > 1:
            yield f"    {offer.attacks} of {offer.of} attacks {KNOW}"
    if len(met) == 1:
        yield f"  {next(iter(met))}"
    warnings = [(offer.defense, notice) for offer in offers for notice in offer.warnings]
    doubts = [(offer.defense, notice) for offer in offers for notice in offer.doubts]
    for mark, said in (("WARNING ", warnings), ("", doubts)):
        for (name, message), whose in _by_notice(said).items():
            every = len(offers) > 1 and len(whose) == len(offers)
            yield f"  {mark}{name} ({'all of these' if every else ', '.join(whose)}): {message}"


def _by_notice(said: Iterable[tuple[str, Notice]]) -> dict[tuple[str, str], list[str]]:
    """The defenses of which each is said."""
    found: dict[tuple[str, str], list[str]] = {}
    for defense, notice in said:
        found.setdefault((notice.name, notice.message), []).append(defense)
    return found


def _offer(offer: Offer, place: str) -> Iterator[str]:
    from harness.results.numbers import gained, metric_name, percent, share

    yield f"  {'not recommended: ' if offer.doubts else ''}{offer.defense}{place}"
    chance = f", chance {percent(offer.chance)}" if offer.chance is not None else ""
    kept = f", {share(offer.retained)} of that without protection" if offer.retained else ""
    yield f"    accuracy {share(offer.accuracy)}{chance}{kept}"
    if offer.leak:
        got = f"{metric_name(offer.leak.metric)} {gained(offer.leak)}"
        yield f"    {offer.leak.strongest} got most: {got} over the best guess"

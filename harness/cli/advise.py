"""`harness advise`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from harness.cli.options import FiniteRange, epilog, json_option

if TYPE_CHECKING:
    from harness.advice import Advice, Offer
    from harness.results.view import Notice

SUPPOSED = "informed"
"""The attacker where nobody says who it is."""
KNOW = "need no more than this attacker knows"
LISTING = ("control_failed", "control_not_run")
"""Notices that end with the attacks that they are of."""
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
    """Offers by what is released: numbers of different releases say nothing of each other.

    What is against offers of several releases stands once, behind all of them.
    """
    if advice.refusal:
        yield advice.refusal
    offers = (*advice.recommended, *advice.doubtful)
    groups: dict[str, list[Offer]] = {}
    for offer in offers:
        groups.setdefault(offer.released, []).append(offer)
    met = Counter(reason for group in groups.values() for reason in _reasons(group))
    shared = {reason for reason, count in met.items() if count > 1}
    for released, group in groups.items():
        yield from _group(released, group, shared)
    yield from _shared(offers, shared)
    yield CAUTION


def _group(released: str, offers: Sequence[Offer], shared: Collection[Reason]) -> Iterator[str]:
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
    for reason, against in _reasons(offers).items():
        if reason not in shared:
            whose = dict.fromkeys(offer.defense for offer in against.offers)
            every = len(offers) > 1 and len(against.offers) == len(offers)
            yield f"  {reason.opening} ({'all of these' if every else ', '.join(whose)}): " + (
                reason.message(against)
            )


def _shared(offers: Sequence[Offer], shared: Collection[Reason]) -> Iterator[str]:
    """What is against offers of several releases, with whose they are."""
    found = [(reason, against) for reason, against in _reasons(offers).items() if reason in shared]
    if found:
        yield ""
        yield "of several of these releases:"
    for reason, against in found:
        boards: dict[str, dict[str, None]] = {}
        for offer in against.offers:
            boards.setdefault(offer.board, {})[offer.defense] = None
        of_boards = "; ".join(f"{board}: {', '.join(whose)}" for board, whose in boards.items())
        every = len(against.offers) == len(offers)
        yield f"  {reason.opening} ({'all of these' if every else of_boards}): " + (
            reason.message(against)
        )


@dataclass(frozen=True)
class Reason:
    """What is said against offers: a notice's name and message, without the attacks it lists."""

    mark: str
    name: str
    what: str

    @property
    def opening(self) -> str:
        """Its name, marked where it is only a warning."""
        return f"{self.mark}{self.name}"

    def message(self, against: Against) -> str:
        """Its message, with all attacks that any of the offers' notices lists."""
        return (
            f"{self.what}: {', '.join(sorted(against.attacks))}" if against.attacks else self.what
        )


@dataclass
class Against:
    """The offers of which a reason is said, and the attacks that their notices list."""

    offers: list[Offer] = field(default_factory=list)
    attacks: set[str] = field(default_factory=set)


def _reasons(offers: Iterable[Offer]) -> dict[Reason, Against]:
    """Warnings, then doubts; notices that differ only in the attacks that they list are one."""
    offers = list(offers)
    found: dict[Reason, Against] = {}
    for mark, kind in (("WARNING ", "warnings"), ("", "doubts")):
        for offer in offers:
            for notice in getattr(offer, kind):
                reason, attacks = _parted(mark, notice)
                against = found.setdefault(reason, Against())
                against.offers.append(offer)
                against.attacks.update(attacks)
    return found


def _parted(mark: str, notice: Notice) -> tuple[Reason, list[str]]:
    """A notice without the attacks that it lists at its end, and these."""
    if notice.name not in LISTING:
        return Reason(mark, notice.name, notice.message), []
    what, _, attacks = notice.message.rpartition(": ")
    return Reason(mark, notice.name, what), attacks.split(", ")


def _offer(offer: Offer, place: str) -> Iterator[str]:
    from harness.results.numbers import gained, metric_name, percent, share

    yield f"  {'not recommended: ' if offer.doubts else ''}{offer.defense}{place}"
    chance = f", chance {percent(offer.chance)}" if offer.chance is not None else ""
    kept = f", {share(offer.retained)} of that without protection" if offer.retained else ""
    yield f"    accuracy {share(offer.accuracy)}{chance}{kept}"
    if offer.leak:
        got = f"{metric_name(offer.leak.metric)} {gained(offer.leak)}"
        yield f"    {offer.leak.strongest} got most: {got} over the best guess"

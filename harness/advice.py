"""Which defenses keep an accuracy, and what an attacker got from each. Pure.

It never calls a defense safe: it reports the strongest attack that ran, and refuses where the
records do not bear even that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.api.errors import UsageError, nearest
from harness.results.build import shown
from harness.results.groups import lines
from harness.results.leading import leading, ranking
from harness.results.rows import ranked
from harness.results.trust import Controls
from harness.results.view import Leak, Notice, Number

if TYPE_CHECKING:
    from harness.boards.protocol import Board, Track
    from harness.results.groups import Group, Line
    from harness.results.material import Material
    from harness.results.view import RowView


@dataclass(frozen=True)
class Wish:
    """What somebody wants to know. `grants` are the channels that the attacker holds."""

    dataset: str
    min_accuracy: float
    attacker: str
    grants: Collection[str]
    metric: str | None = None


class Offer(BaseModel):
    """A defense that keeps the accuracy, on the front of those that do.

    `leak` is what the strongest of `attacks` got, out of `of` that met it: the others know more
    than this attacker. `doubts` are why it is not recommended; it is where there are none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    board: str
    track: str
    title: str
    defense: str
    accuracy: Number
    retained: Number | None
    leak: Leak | None
    attacks: int
    of: int
    doubts: tuple[Notice, ...] = ()


class Advice(BaseModel):
    """What can be said. Without a recommendation, `refusal` says why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    min_accuracy: float
    attacker: str
    recommended: tuple[Offer, ...] = ()
    doubtful: tuple[Offer, ...] = ()
    refusal: str = ""


def advise(materials: Sequence[Material], wish: Wish) -> Advice:
    """Advice from boards; UsageError where none is of that dataset or has that metric."""
    tracks = _tracks(materials, wish.dataset)
    found = [offer for material, track in tracks for offer in _offers(material, track, wish)]
    ordered = sorted(found, key=_place)
    recommended = tuple(offer for offer in ordered if not offer.doubts)
    return Advice(
        dataset=wish.dataset,
        min_accuracy=wish.min_accuracy,
        attacker=wish.attacker,
        recommended=recommended,
        doubtful=tuple(offer for offer in ordered if offer.doubts),
        refusal="" if recommended else _refusal(found, wish),
    )


def _tracks(materials: Iterable[Material], dataset: str) -> list[tuple[Material, Track]]:
    every = [(m, track) for m in materials for track in m.board.tracks]
    found = [(m, track) for m, track in every if _dataset(m.board, track) == dataset]
    if not found:
        known = {_dataset(m.board, track) for m, track in every}
        raise UsageError(f"No board is of the dataset '{dataset}'.{nearest(dataset, known)}")
    return found


def _dataset(board: Board, track: Track) -> str:
    return str({**board.options, **track.options}.get("dataset", ""))


def _offers(material: Material, track: Track, wish: Wish) -> list[Offer]:
    """The front of what this attacker gets, of those defenses that keep the accuracy.

    Also those that nothing is known of, or too little to give them a rank: their doubts say so.
    """
    met = {line.defense: line for line in lines(material) if line.track == track.name}
    able = {name: _within_reach(line, wish.grants) for name, line in met.items()}
    every = [each.view for each in shown(able.values(), Controls(material.controls))]
    metric = _metric(every, wish.metric)
    keeping = [row for row in every if row.protected and _keeps(row, wish.min_accuracy)]
    return [
        _offer(material.board, track, row, metric, (able[row.defense], met[row.defense]))
        for row in ranked(keeping, [metric] if metric else [])
        if row.rank.get(metric, 1) == 1
    ]


def _within_reach(line: Line, grants: Collection[str]) -> Line:
    """The line with those attacks alone that need no more than the attacker holds.

    What an attack without any record would use is not known: it stays, as a gap.
    """
    able = [all({*r.channels_used} <= {*grants} for r in g.records) for g in line.groups]
    pairs = list(zip(line.groups, able, strict=True))
    return replace(
        line,
        groups=tuple(group for group, within in pairs if within),
        beside=tuple(group for group, within in pairs if not within),
    )


def _metric(rows: Sequence[RowView], asked: str | None) -> str:
    """The metric that decides: the first one of the rows, or what was asked for; "" if none."""
    known = ranking(row.leaks for row in rows)
    if asked and known and asked not in known:
        raise UsageError(f"Rows are not ranked by '{asked}'.{nearest(asked, known)}")
    return asked if asked in known else next(iter(known), "")


def _keeps(row: RowView, wanted: float) -> bool:
    """Whether the accuracy surely is what was asked for."""
    if row.accuracy is None:
        return False
    low, _ = row.accuracy.ci or (row.accuracy.value, row.accuracy.value)
    return low >= wanted


def _offer(
    board: Board, track: Track, row: RowView, metric: str, lines: tuple[Line, Line]
) -> Offer:
    able, met = ([g for g in line.groups if _counts(g)] for line in lines)
    leak = leading(row.leaks, metric) if metric else None
    unscored = f"nothing was scored by {metric} here" if able else _nothing_ran(met)
    unknown = [] if leak else [unscored]
    assert row.accuracy is not None
    return Offer(
        board=board.name,
        track=track.name,
        title=track.title,
        defense=row.defense,
        accuracy=row.accuracy,
        retained=row.retained,
        leak=leak,
        attacks=len(able),
        of=len(met),
        doubts=(*row.flags, *unknown),
    )


def _counts(group: Group) -> bool:
    return any(record.by_image for record in group.counted)


def _nothing_ran(met: Sequence[Group]) -> Notice:
    message = (
        f"none of the {len(met)} attacks that met it can be run with what this attacker knows: "
        "what it could get is not known"
    )
    return Notice(name="no_attack", message=message)


def _place(offer: Offer) -> tuple[float, str, str, str]:
    gain = offer.leak.gain.value if offer.leak else float("inf")
    return gain, offer.board, offer.track, offer.defense


def _refusal(found: Sequence[Offer], wish: Wish) -> str:
    if not found:
        return (
            f"No defense surely keeps an accuracy of {wish.min_accuracy:g} on "
            f"'{wish.dataset}' here."
        )
    return (
        "Of every defense that would do, something makes the numbers unsafe to rely on: the "
        "reasons stand beside each."
    )

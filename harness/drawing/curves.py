"""Accuracy over private images: a curve for each defense, and one for unprotected images.

Points are records, or numbers of a board's rows; where they stand and what they say is decided
here. `png` and `svg` only draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.api.errors import UsageError
from harness.drawing.plane import ends
from harness.results.learned import over_seeds
from harness.results.numbers import number, share
from harness.results.view import BoardView, Learned, Number, RowView
from harness.store.record import RunRecord


@dataclass(frozen=True)
class Spot:
    """An accuracy from so many private images; `tip` is what it says when pointed at.

    `nothing`: the strongest learner found nothing there.
    """

    n: int
    accuracy: Number
    tip: str = ""
    nothing: bool = False


@dataclass(frozen=True)
class Curve:
    """One defense, each image released in so many rounds, by private images."""

    defense: str
    rounds: int
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Curves:
    """All that is drawn. `unprotected` is by private images, `chance` the largest of all points'.

    `defenses` are in the order of their colours, `rounds` in that of their dashes.
    """

    curves: tuple[Curve, ...]
    unprotected: tuple[Spot, ...] = ()
    chance: float | None = None
    heading: str = ""
    note: str = "95% intervals; of each point the best learner, chosen on other test images"

    @property
    def defenses(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(curve.defense for curve in self.curves))

    @property
    def rounds(self) -> tuple[int, ...]:
        """Each once, the fewest first."""
        return tuple(sorted({curve.rounds for curve in self.curves}))

    @property
    def sizes(self) -> tuple[int, ...]:
        """All numbers of private images, the least first."""
        spots = (spot for curve in self.curves for spot in curve.spots)
        return tuple(sorted({spot.n for spot in (*spots, *self.unprotected)}))

    @property
    def accuracies(self) -> list[float]:
        """All that is drawn upwards."""
        spots = [spot for curve in self.curves for spot in curve.spots] + [*self.unprotected]
        chance = [] if self.chance is None else [self.chance]
        return [*(value for spot in spots for value in ends(spot.accuracy)), *chance]


def row_curves(rows: Iterable[RowView]) -> Curves | None:
    """Of rows in their order; None where none has accuracies at several numbers of images."""
    curves: dict[tuple[str, int], Curve] = {}
    points: list[Learned] = []
    for row in rows:
        for rounds, learned in row.lines.items():
            if row.protected:
                spots = tuple(map(_spot, learned))
                curves.setdefault((row.defense, rounds), Curve(row.defense, rounds, spots))
            points += learned
    if not any(len(curve.spots) > 1 for curve in curves.values()):
        return None
    bare: dict[int, Learned] = {}
    # One stands for all of this number: that of most seeds, and of the best learners among those.
    for each in sorted(points, key=lambda each: (len(each.seeds), _unprotected_value(each))):
        if each.reference:
            bare[each.private_size] = each
    known = [each.chance for each in points if each.chance is not None]
    return Curves(
        curves=tuple(curves.values()),
        unprotected=tuple(_bare(bare[n]) for n in sorted(bare)),
        chance=max(known, default=None),
    )


def _spot(each: Learned) -> Spot:
    assert each.accuracy is not None
    found = "the strongest learner here found nothing" if each.at_chance else f"by {each.learner}"
    times = "once" if each.rounds == 1 else f"in {each.rounds} rounds"
    lines = (
        f"{each.private_size:,} private images, released {times}",
        f"accuracy {share(each.accuracy)}",
        found,
    )
    return Spot(each.private_size, each.accuracy, "\n".join(lines), each.at_chance)


def _bare(each: Learned) -> Spot:
    assert each.reference is not None
    tip = f"{each.private_size:,} unprotected images\naccuracy {share(each.reference)}"
    return Spot(each.private_size, each.reference, tip)


def curves_of(view: BoardView) -> Curves | None:
    """Those of all of a board's tracks in one picture."""
    found = row_curves(view.rows)
    if found is None:
        return None
    heading = f"{view.title}: what is learned over the number of private images"
    return Curves(found.curves, found.unprotected, found.chance, heading)


def has_curves(records: Sequence[RunRecord]) -> bool:
    """Whether records are of several numbers of private images, or some of accuracy alone."""
    several = len({record.request.sizes.private for record in records}) > 1
    return several or any(record.request.only == "utility" for record in records)


def record_curves(records: Sequence[RunRecord]) -> Curves:
    """The curves of these records, over their seeds; UsageError for one without an accuracy."""
    _check_comparable(records)
    found: dict[tuple[str, int], dict[int, list[RunRecord]]] = {}
    for record in {record.id: record for record in records}.values():
        asked = record.request
        by_size = found.setdefault((asked.defense, asked.rounds), {})
        by_size.setdefault(asked.sizes.private, []).append(record)
    first = records[0]
    return Curves(
        curves=tuple(
            Curve(*of, tuple(_over_seeds(n, by_size[n]) for n in sorted(by_size)))
            for of, by_size in found.items()
        ),
        unprotected=_unprotected(records),
        chance=max(record.utility.chance for record in records if record.utility),
        heading=f"{first.dataset.name}: what is learned over the number of private images",
    )


def _over_seeds(n: int, records: Sequence[RunRecord]) -> Spot:
    """One point, of records of as many images; of equal seeds all tell the same."""
    own = {r.request.seed: r.utility for r in records if r.utility}
    mean = over_seeds(number(u.accuracy, u.interval) for u in own.values())
    assert mean is not None
    return Spot(n, mean, nothing=mean.low <= max(u.chance for u in own.values()))


def _unprotected_value(learned: Learned) -> float:
    return learned.reference.value if learned.reference else 0.0


def _unprotected(records: Sequence[RunRecord]) -> tuple[Spot, ...]:
    found: dict[int, Spot] = {}
    for record in records:
        n, told = record.request.sizes.private, record.utility
        if told and told.reference_accuracy is not None:
            bare = number(told.reference_accuracy, told.reference_interval)
            found.setdefault(n, Spot(n, bare))
    return tuple(found[n] for n in sorted(found))


def _check_comparable(records: Sequence[RunRecord]) -> None:
    same: dict[str, Callable[[RunRecord], str]] = {
        "datasets": lambda record: record.request.dataset,
        "spaces": lambda record: record.request.space,
        "victims": lambda record: record.request.victim,
        "learners": lambda record: record.request.learner,
    }
    for what, of in same.items():
        found = sorted({of(record) for record in records})
        if len(found) > 1:
            raise UsageError(
                f"These records have different {what} ({', '.join(found)}), so their accuracies "
                "make no curve: defense, rounds, seeds and private images may differ."
            )
    without = [record.id[:12] for record in records if record.utility is None]
    if without:
        raise UsageError(f"No accuracy was measured in {', '.join(without)}: it has no place here.")

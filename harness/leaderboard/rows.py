"""Rows of a track: what is learned under a defense, and what the strongest attack gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.leaderboard.cells import cell_view
from harness.leaderboard.leading import leading
from harness.leaderboard.ranks import beats, ranks
from harness.leaderboard.seeds import combined, number, ratio
from harness.leaderboard.strongest import Case, Intervals, leaks
from harness.leaderboard.trust import Controls, row_flags
from harness.leaderboard.view import Number, RowView

if TYPE_CHECKING:
    from harness.leaderboard.groups import Group, Line
    from harness.stages.utility import Utility


@dataclass(frozen=True)
class Shown:
    """A line of a board, its worst cases, and how it is seen."""

    line: Line
    cases: Sequence[Case]
    view: RowView


def row_view(line: Line, cases: Sequence[Case], sure: Intervals, controls: Controls) -> RowView:
    """A row without its rank."""
    standing = [controls.of(r.attack for r in group.records) for group in line.groups]
    pairs = zip(line.groups, standing, strict=True)
    cells = [cell_view(group, state) for group, state in pairs]
    leaked = leaks(cases, sure)
    flags = row_flags(line, cells, standing, leaked)
    learned = _learned((*line.groups, *line.beside))
    return RowView(
        track=line.track,
        defense=line.defense,
        accuracy=_over_seeds(learned, _accuracy),
        reference=_over_seeds(learned, _reference),
        retained=_over_seeds(learned, _retained),
        seeds=tuple(learned),
        leaks=leaked,
        cells=tuple(cells),
        flags=tuple(flags),
        verified=bool(leaked) and not flags,
        origin=line.origin,
    )


def _learned(groups: Sequence[Group]) -> dict[int, Utility]:
    """By seed, the utility that the first attack's record has; that of the others is the same."""
    found: dict[int, Utility] = {}
    for group in groups:
        for record in group.counted:
            if record.utility:
                found.setdefault(record.request.seed, record.utility)
    return dict(sorted(found.items()))


def _over_seeds(
    learned: Mapping[int, Utility], value: Callable[[Utility], Number | None]
) -> Number | None:
    found = [each for utility in learned.values() if (each := value(utility))]
    return combined(found) if found else None


def _accuracy(utility: Utility) -> Number:
    return number(utility.accuracy, utility.interval)


def _reference(utility: Utility) -> Number | None:
    if utility.reference_accuracy is None:
        return None
    return number(utility.reference_accuracy, utility.reference_interval)


def _retained(utility: Utility) -> Number | None:
    """Accuracy over that without protection."""
    reference = _reference(utility)
    return ratio(_accuracy(utility), reference) if reference and reference.value else None


def ranked(rows: Sequence[RowView], metrics: Sequence[str]) -> list[RowView]:
    """The same rows with their ranks, by the first metric, then by accuracy."""
    ranks_of = {metric: _ranks(rows, metric) for metric in metrics}
    full = [
        each.model_copy(
            update={"rank": {m: found[i] for m, found in ranks_of.items() if i in found}}
        )
        for i, each in enumerate(rows)
    ]
    return sorted(full, key=lambda each: _place(each, metrics))


def _ranks(rows: Sequence[RowView], metric: str) -> Mapping[int, int]:
    """By number of the row, its rank among those that have accuracy and leak."""
    axes = {i: found for i, each in enumerate(rows) if (found := _axes(each, metric))}
    return dict(zip(axes, ranks(list(axes.values()), beats), strict=True))


def _axes(each: RowView, metric: str) -> tuple[Number, Number] | None:
    """Accuracy, and the gain turned round; both are better where they are higher.

    An attacker who does worse than guessing could have guessed: such a gain counts as none.
    """
    leak = leading(each.leaks, metric)
    if leak is None or each.accuracy is None:
        return None
    low, high = leak.gain.ci or (leak.gain.value, leak.gain.value)
    kept = Number(value=-max(0.0, leak.gain.value), ci=(-max(0.0, high), -max(0.0, low)))
    return each.accuracy, kept


def _place(each: RowView, metrics: Sequence[str]) -> tuple[float, float, str]:
    rank = each.rank.get(metrics[0]) if metrics else None
    accuracy = each.accuracy.value if each.accuracy else 0.0
    return (float("inf") if rank is None else rank, -accuracy, each.defense)

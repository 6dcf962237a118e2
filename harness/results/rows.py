"""Rows of a track: what is learned under a defense, and what the strongest attack gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from harness.asking.registry import registry
from harness.asking.selector import parse_stack
from harness.results.cells import cell_view
from harness.results.leading import leading
from harness.results.ranks import beats, ranks
from harness.results.seeds import combined, number, ratio, rounded
from harness.results.strongest import Case, Intervals, leaks
from harness.results.trust import Controls, row_flags
from harness.results.view import Notice, Number, RowView

if TYPE_CHECKING:
    from harness.results.groups import Group, Line
    from harness.scoring.utility import Utility


@dataclass(frozen=True)
class Shown:
    """A line of a board, its worst cases, and how it is seen."""

    line: Line
    cases: Sequence[Case]
    view: RowView


def row_view(line: Line, cases: Sequence[Case], sure: Intervals, controls: Controls) -> RowView:
    """A row without its rank."""
    standing = [controls.of(group.kept) for group in line.groups]
    pairs = zip(line.groups, standing, strict=True)
    cells = [cell_view(group, state) for group, state in pairs]
    leaked = leaks(cases, sure)
    own = [group for group in line.groups if group.origin in ("", line.origin)]
    flags = [*row_flags(line, cells, standing, leaked), *_seeds_missing(own)]
    learned = _learned((*line.groups, *line.beside))
    return RowView(
        track=line.track,
        defense=line.defense,
        accuracy=_over_seeds(learned, _accuracy),
        reference=_over_seeds(learned, _reference),
        retained=_over_seeds(learned, _retained),
        chance=_mean_chance(learned),
        seeds=tuple(learned),
        leaks=leaked,
        cells=tuple(cells),
        flags=tuple(flags),
        verified=bool(leaked) and not flags,
        protected=_protects(line.defense),
        missing=_missing(own),
        origin=line.origin,
    )


def _missing(groups: Iterable[Group]) -> int:
    """Cells without a record."""
    return sum(kept is None for group in groups for kept in group.seeds.values())


def _seeds_missing(groups: Iterable[Group]) -> Iterator[Notice]:
    """Attacks that have run on some of their seeds only."""
    lacking = [group.attack for group in groups if group.records and _missing([group])]
    if lacking:
        message = f"not run yet on every seed: {', '.join(dict.fromkeys(lacking))}"
        yield Notice(name="seeds_missing", message=message)


def _protects(defense: str) -> bool:
    """Whether any of a stack does anything; of one that is not installed here, so it is taken."""
    known = registry().entries["defenses"]
    names = [each.name for each in parse_stack(defense)]
    return any(name not in known or known[name].spec.protects for name in names)


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


def _mean_chance(learned: Mapping[int, Utility]) -> float | None:
    values = [utility.chance for utility in learned.values()]
    return rounded(sum(values) / len(values)) if values else None


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
    return in_order(full, metrics[0] if metrics else "")


def in_order(rows: Iterable[RowView], metric: str) -> list[RowView]:
    """Rows by rank; within a rank the more accurate first; without a rank last."""
    return sorted(rows, key=lambda each: _place(each, metric))


def _ranks(rows: Sequence[RowView], metric: str) -> Mapping[int, int]:
    """By number of the row, its rank among those that can have one."""
    able = [i for i, row in enumerate(rows) if row.protected and not row.missing]
    axes = {i: found for i in able if (found := _axes(rows[i], metric))}

    def wins(one: int, other: int) -> bool:
        trusted = rows[one].verified or not rows[other].verified
        return trusted and beats(axes[one], axes[other])

    return dict(zip(axes, ranks(list(axes), wins), strict=True))


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


def _place(each: RowView, metric: str) -> tuple[float, float, str]:
    accuracy = each.accuracy.value if each.accuracy else 0.0
    return each.rank.get(metric, inf), -accuracy, each.defense

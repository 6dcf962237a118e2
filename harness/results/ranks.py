"""Who is ahead: rows by accuracy and leakage, attacks by what they gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from harness.results.numbers import together
from harness.results.strongest import wins
from harness.results.view import AttackView, Number, RowView

if TYPE_CHECKING:
    from harness.results.build import Shown
    from harness.results.material import Kept
    from harness.results.trust import Controls

T = TypeVar("T")

RULE = (
    "A row beats another where it is surely better in accuracy or in leakage (their 95% intervals "
    "are apart) and its estimate of the other is no worse, unless it alone is unverified; rows "
    "that none beats are the front and share rank 1, and each further rank is the front of the "
    "rows that are left."
)
"""What a rank is: the same sentence wherever ranks are explained."""


def surely_above(one: Number, other: Number) -> bool:
    """Whether the whole interval of one lies above that of the other; a bare value is its own."""
    return one.low > other.high


def beats(one: Sequence[Number], other: Sequence[Number]) -> bool:
    """Whether one is surely better on some axis, and its estimate on no axis worse.

    Higher is better. An interval that is wide is no merit: what counts beside the sure axis is the
    estimate. Whoever beats another is ahead of it by estimates too, so there are no rings.
    """
    axes = list(zip(one, other, strict=True))
    no_worse = all(mine.value >= theirs.value for mine, theirs in axes)
    return no_worse and any(
        mine.value > theirs.value and surely_above(mine, theirs) for mine, theirs in axes
    )


def ranks(items: Sequence[T], wins: Callable[[T, T], bool]) -> list[int]:
    """Of each, in layers: 1 where none wins against it, else one more than the last that does.

    So no two of one rank win against each other. Where some win against each other in a ring,
    they share a rank, and somebody always comes first.
    """
    n = len(items)
    won = [i != j and wins(items[i], items[j]) for i in range(n) for j in range(n)]
    reached = np.array(won, bool).reshape(n, n)
    for via in range(n):  # who wins through others
        reached |= np.outer(reached[:, via], reached[via])
    ahead = reached & ~reached.T
    found = [0] * n
    for j in ahead.sum(0).argsort(kind="stable"):
        found[j] = 1 + max((found[i] for i in np.flatnonzero(ahead[:, j])), default=0)
    return found


def ranked(rows: Sequence[RowView], metrics: Sequence[str]) -> list[RowView]:
    """The same rows with their ranks, by the first metric, then by accuracy."""
    found = {metric: _ranks_of_rows(rows, metric) for metric in metrics}
    own = [{m: by_row[i] for m, by_row in found.items() if i in by_row} for i in range(len(rows))]
    full = [row.model_copy(update={"rank": rank}) for row, rank in zip(rows, own, strict=True)]
    return rows_in_order(full, metrics[0] if metrics else "")


def rows_in_order(rows: Iterable[RowView], metric: str) -> list[RowView]:
    """Rows by rank; within a rank the more accurate first; without a rank last."""

    def place(row: RowView) -> tuple[float, float, str]:
        accuracy = row.accuracy.value if row.accuracy else 0.0
        return row.rank.get(metric, inf), -accuracy, row.defense

    return sorted(rows, key=place)


def _ranks_of_rows(rows: Sequence[RowView], metric: str) -> Mapping[int, int]:
    """By number of the row, its rank among those that can have one."""
    able = [i for i, row in enumerate(rows) if row.protected and not (row.missing or row.only_weak)]
    axes = {i: found for i in able if (found := _axes(rows[i], metric))}

    def wins(one: int, other: int) -> bool:
        trusted = rows[one].verified or not rows[other].verified
        return trusted and beats(axes[one], axes[other])

    return dict(zip(axes, ranks(list(axes), wins), strict=True))


def _axes(row: RowView, metric: str) -> tuple[Number, Number] | None:
    """Accuracy, and the gain turned round; both are better where they are higher.

    An attacker who does worse than guessing could have guessed: such a gain counts as none.
    """
    leak = row.leak(metric)
    if leak is None or row.accuracy is None:
        return None
    value, low, high = (max(0.0, each) for each in (leak.gain.value, leak.gain.low, leak.gain.high))
    return row.accuracy, Number(value=-value, ci=(-high, -low))


@dataclass
class Met:
    """What one attack met: `gains` by metric and defense."""

    cells: int = 0
    kept: list[Kept] = field(default_factory=list)
    gains: dict[str, dict[str, Number]] = field(default_factory=dict)


def attack_views(
    rows: Sequence[Shown], controls: Controls, metrics: Sequence[str]
) -> list[AttackView]:
    """The attacks that have a result in a track, the strongest first."""
    met = _met(rows, metrics)
    nearest = _nearest(rows, metrics[0]) if metrics else Counter()
    ranks_of = {metric: _ranks_of_attacks(met, metric) for metric in metrics}
    found = [
        AttackView(
            attack=key[0],
            threat_model=key[1],
            gain={m: together([*each.gains[m].values()]) for m in metrics if m in each.gains},
            rank={m: ranks[key] for m, ranks in ranks_of.items() if key in ranks},
            cells=each.cells,
            strongest_of=nearest[key[0]],
            control=controls.of(each.kept),
        )
        for key, each in met.items()
    ]
    return attacks_in_order(found, metrics[0] if metrics else "")


def attacks_in_order(attacks: Iterable[AttackView], metric: str) -> list[AttackView]:
    """Attacks by rank, within a rank by their mean gain; those without a rank last."""

    def place(each: AttackView) -> tuple[float, float, str, str]:
        gain = each.gain[metric].value if metric in each.gain else -inf
        return each.rank.get(metric, inf), -gain, each.attack, each.threat_model

    return sorted(attacks, key=place)


def _met(rows: Sequence[Shown], metrics: Sequence[str]) -> dict[tuple[str, str], Met]:
    """By attack and threat model, the defenses it met.

    The reference is none of them, but tells what was run.
    """
    found: dict[tuple[str, str], Met] = {}
    for row in rows:
        for group, cell in zip(row.line.groups, row.view.cells, strict=True):
            if not group.counted:
                continue
            met = found.setdefault((cell.attack, cell.threat_model), Met())
            met.kept += group.kept
            if not row.view.protected:
                continue
            met.cells += 1
            for metric in metrics:
                if leak := cell.leak(metric):
                    met.gains.setdefault(metric, {})[row.line.defense] = leak.gain
    return found


def _ranks_of_attacks(
    met: Mapping[tuple[str, str], Met], metric: str
) -> Mapping[tuple[str, str], int]:
    """Of those that surely gain against some defense: nobody comes first who gains nothing."""
    gains = {key: each.gains.get(metric, {}) for key, each in met.items()}
    able = {key: own for key, own in gains.items() if any(g.low > 0 for g in own.values())}
    return dict(zip(able, ranks(list(able.values()), _stronger), strict=True))


def _stronger(one: Mapping[str, Number], other: Mapping[str, Number]) -> bool:
    """Whether one surely gains more, over the defenses that both met."""
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return False
    return surely_above(*(together([each[d] for d in shared]) for each in (one, other)))


def _nearest(rows: Sequence[Shown], metric: str) -> Counter[str]:
    """Of how many protected images each attack was the strongest, over rows and seeds."""
    counted: Counter[str] = Counter()
    for row in (each for each in rows if each.view.protected):
        leak = row.view.leak(metric)
        name = leak.metric if leak else metric
        counted += wins(each[name] for each in row.cases.values() if name in each)
    return counted

"""Attacks of a track, ranked by what they gain over nulls on the defenses that they met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from harness.results.leading import leading
from harness.results.ranks import ranks, surely_above
from harness.results.seeds import together
from harness.results.strongest import wins
from harness.results.trust import Controls
from harness.results.view import AttackView, Number

if TYPE_CHECKING:
    from harness.results.material import Kept
    from harness.results.rows import Shown

Attacker = tuple[str, str]
"""An attack as written, and its threat model."""


@dataclass
class Met:
    """What one attack met: `gains` by metric and defense."""

    attack: str
    threat_model: str
    cells: int = 0
    kept: list[Kept] = field(default_factory=list)
    gains: dict[str, dict[str, Number]] = field(default_factory=dict)


def attack_views(
    rows: Sequence[Shown], controls: Controls, metrics: Sequence[str]
) -> list[AttackView]:
    """The attacks that have a result in a track, the strongest first."""
    met = _met(rows, metrics)
    nearest = _nearest(rows, metrics[0]) if metrics else Counter()
    ranks_of = {metric: _ranks(list(met.values()), metric) for metric in metrics}
    found = [
        AttackView(
            attack=each.attack,
            threat_model=each.threat_model,
            gain={m: together([*each.gains[m].values()]) for m in metrics if m in each.gains},
            rank={m: ranks[key] for m, ranks in ranks_of.items() if key in ranks},
            cells=each.cells,
            strongest_of=nearest[each.attack],
            control=controls.of(each.kept),
        )
        for key, each in met.items()
    ]
    return in_order(found, metrics[0] if metrics else "")


def in_order(attacks: Iterable[AttackView], metric: str) -> list[AttackView]:
    """Attacks by rank, within a rank by their mean gain; those without a rank last."""
    return sorted(attacks, key=lambda each: _place(each, metric))


def _met(rows: Sequence[Shown], metrics: Sequence[str]) -> dict[Attacker, Met]:
    """By attack, the defenses it met: the reference is none of them, but tells what was run."""
    found: dict[Attacker, Met] = {}
    for row in rows:
        for group, cell in zip(row.line.groups, row.view.cells, strict=True):
            if not group.counted:
                continue
            key = (cell.attack, cell.threat_model)
            met = found.setdefault(key, Met(*key))
            met.kept += group.kept
            if not row.view.protected:
                continue
            met.cells += 1
            for metric in metrics:
                if leak := leading(cell.leaks, metric):
                    met.gains.setdefault(metric, {})[row.line.defense] = leak.gain
    return found


def _ranks(met: Sequence[Met], metric: str) -> Mapping[Attacker, int]:
    """Of those that surely gain against some defense: nobody comes first who gains nothing."""
    able = [each for each in met if any(map(_sure, each.gains.get(metric, {}).values()))]
    found = ranks([each.gains[metric] for each in able], _stronger)
    return {(m.attack, m.threat_model): rank for m, rank in zip(able, found, strict=True)}


def _sure(gain: Number) -> bool:
    return (gain.ci or (gain.value,))[0] > 0


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
        leak = leading(row.view.leaks, metric)
        name = leak.metric if leak else metric
        counted += wins(case.metrics[name] for case in row.cases if name in case.metrics)
    return counted


def _place(each: AttackView, metric: str) -> tuple[float, float, str, str]:
    gain = each.gain[metric].value if metric in each.gain else -inf
    return each.rank.get(metric, inf), -gain, each.attack, each.threat_model

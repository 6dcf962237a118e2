"""What cells will take, judged by what others took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.asking.request import Request
    from harness.store.record import RunRecord, Used

OF_STEPS = {"train": "training", "reference": "training unprotected", "release": "release"}
"""Which time of a record is that of a step that is not an attack's."""


class Costs:
    """Seconds that steps took in records, by how much they are alike."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._seen: dict[tuple[object, ...], list[float]] = {}
        for record in records:
            for step, seconds in _taken(record).items():
                for key in _likeness(step, record.request, _name(record, step)):
                    self._seen.setdefault(key, []).append(seconds)

    def of(self, step: str, request: Request, name: str) -> float | None:
        """The median of what came nearest to such a step; None where nothing did.

        `name` is the attack's, or the stack's where the step is none of an attack.
        """
        for key in _likeness(step, request, name):
            if key in self._seen:
                return median(self._seen[key])
        return None


def _name(record: RunRecord, step: str) -> str:
    return record.attack.name if step == "attack" else stack_name(record.defense)


def stack_name(defenses: Iterable[Used]) -> str:
    """A stack's plugins without their options."""
    return "+".join(each.name for each in defenses)


def _taken(record: RunRecord) -> dict[str, float]:
    """A record's times by step."""
    timing = record.timing
    found = {step: timing[label] for step, label in OF_STEPS.items() if label in timing}
    label = f"attack {record.attack.name}"
    if label in timing:
        of_attack = (label, f"prepare {record.attack.name}", f"judge {record.attack.name}")
        found["attack"] = sum(timing.get(each, 0.0) for each in of_attack)
    return found


def _likeness(step: str, request: Request, name: str) -> list[tuple[object, ...]]:
    """Keys from the most alike to the least."""
    sizes = (request.sizes.private, request.rounds, request.targets, request.batch_size)
    written = request.attack if step == "attack" else request.victim
    return [
        (step, request.dataset, written, request.defense, sizes),
        (step, request.dataset, written, name, sizes),
        (step, request.dataset, written, sizes),
        (step, request.dataset, name),
    ]


def in_words(seconds: float) -> str:
    """A duration to read: `45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def share_done(costs: Mapping[str, float | None], done: set[str]) -> float:
    """How much of the work is done, by its cost; what nobody knows counts as the average."""
    known = [cost for cost in costs.values() if cost is not None]
    typical = sum(known) / len(known) if known else 1.0
    weights = {name: typical if cost is None else cost for name, cost in costs.items()}
    whole = sum(weights.values())
    return sum(weights[name] for name in done) / whole if whole else 1.0

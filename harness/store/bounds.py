"""What a record says of what nothing exceeds: ceilings beside what was reached, and budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from harness.api.release import GUARANTEE
from harness.scoring.ceilings import LABELS, Proof, Proven, Reached

if TYPE_CHECKING:
    from harness.store.record import RunRecord

EPSILON, DELTA = "epsilon", "delta"
IDENTIFICATION = "identification"
"""The quantity, where a ceiling tells it, of who is named among its candidates."""
BLIND = "blind_snr_db"
"""Likewise of what a guess without the release has, pooled."""


class Budget(BaseModel):
    """What is proven of a release as differential privacy: epsilon at delta, of one adjacency.

    Budgets of two adjacencies do not compare.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float
    delta: float
    adjacency: str


@dataclass(frozen=True)
class Bounded:
    """What one attack reached, and the ceiling that holds against it."""

    reached: Reached
    proof: Proof

    @property
    def ceiling(self) -> Proven:
        """Of pooled SNR."""
        return self.proof.quantities[self.reached.bound]

    @property
    def vacuous(self) -> bool:
        """Whether the ceiling holds and says nothing."""
        return self.reached.bound in self.proof.vacuous

    @property
    def labels(self) -> bool:
        """Whether the attack reads labels, and the ceiling is that of whoever does."""
        return self.reached.bound.endswith(LABELS)

    def beside(self, name: str) -> Proven | None:
        """Another quantity of that ceiling, of whoever knows as much."""
        return self.proof.quantities.get(f"{name}{LABELS if self.labels else ''}")


def bounded(record: RunRecord) -> Iterator[tuple[str, Bounded]]:
    """Every attack of a record that a ceiling bounds, by name."""
    for proof in record.ceilings.values():
        for attack, reached in proof.reached.items():
            if reached.bound in proof.quantities:
                yield attack, Bounded(reached, proof)


def budget_of(record: RunRecord) -> Budget | None:
    """What is proven of a record's release by its defense, else by a ceiling."""
    told = [_of_defense(used.resolved) for used in record.defense]
    told += [_of_ceiling(record, name, proof) for name, proof in record.ceilings.items()]
    return next(filter(None, told), None)


def _of_defense(resolved: dict[str, Any]) -> Budget | None:
    return _budget(*(resolved.get(f"{GUARANTEE}{name}") for name in (EPSILON, DELTA, "adjacency")))


def _of_ceiling(record: RunRecord, name: str, proof: Proof) -> Budget | None:
    """A ceiling that tells an epsilon says first of its assumptions of which neighbours it is."""
    found, plugin = proof.quantities.get(EPSILON), record.ceiling_plugins.get(name)
    if found is None or plugin is None or not proof.assumptions:
        return None
    adjacency = proof.assumptions[0].partition(".")[0]
    return _budget(found.value, plugin.config.get(DELTA), adjacency)


def _budget(epsilon: Any, delta: Any, adjacency: Any) -> Budget | None:
    """None where any of them is not told, or is none."""
    numbers = all(isinstance(each, int | float) and isfinite(each) for each in (epsilon, delta))
    if not (numbers and isinstance(adjacency, str)):
        return None
    return Budget(epsilon=epsilon, delta=delta, adjacency=adjacency)

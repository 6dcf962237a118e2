"""What was reached beside what nothing exceeds: a row's leakage from both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.results.material import Group
from harness.results.numbers import combined, number
from harness.results.view import Bracket, Number
from harness.scoring.ceilings import LABELS, Proof, Reached
from harness.store.record import RunRecord

Held = tuple[int, Proof, Reached]
"""Of one seed: what a ceiling says, and what one attack reached of it."""


def bracket(groups: Iterable[Group]) -> Bracket | None:
    """The attack that comes nearest to its ceiling, over its seeds; one that says something first.

    None where no attack of a row is bounded.
    """
    found = [each for group in groups for each in _of_group(group)]
    return min(found, key=_room, default=None)


def unbounded(groups: Iterable[Group]) -> str:
    """Why there is no ceiling, where one was asked for; empty where there is one, or none was."""
    proofs = [p for group in groups for r in group.counted for p in r.ceilings.values()]
    if any(not proof.reason for proof in proofs):
        return ""
    return next((proof.reason for proof in proofs), "")


def _room(each: Bracket) -> tuple[bool, float]:
    return each.vacuous, each.ceiling.value - each.reached.value


def _of_group(group: Group) -> Iterator[Bracket]:
    found: dict[tuple[str, str], list[Held]] = {}
    for record in group.counted:
        for attack, proof, reached in _held(record):
            place = attack, reached.bound
            found.setdefault(place, []).append((record.request.seed, proof, reached))
    for (attack, bound), held in found.items():
        yield _over_seeds(attack, bound, held)


def _held(record: RunRecord) -> Iterator[tuple[str, Proof, Reached]]:
    for proof in record.ceilings.values():
        for attack, reached in proof.reached.items():
            if reached.bound:
                yield attack, proof, reached


def _over_seeds(attack: str, bound: str, held: list[Held]) -> Bracket:
    proven = [proof.quantities[bound] for _, proof, _ in held]
    return Bracket(
        attack=attack,
        reached=combined([number(reached.value, reached.interval) for _, _, reached in held]),
        ceiling=combined([number(each.value, each.interval) for each in proven]),
        labels=bound.endswith(LABELS),
        vacuous=any(bound in proof.vacuous for _, proof, _ in held),
        seeds=tuple(seed for seed, _, _ in held),
    )


def bracketed(found: Bracket) -> str:
    """`4.40 … 5.37`; what says nothing stands in brackets."""
    ceiling = f"{found.ceiling.value:.2f}"
    return f"{found.reached.value:.2f} … {f'({ceiling})' if found.vacuous else ceiling}"


def in_decibels(found: Bracket) -> str:
    """`lmmse reached 4.40 dB [4.1, 4.7], and no single attack that … exceeds 5.37 dB […]`."""
    reads = "labels" if found.labels else "no labels"
    who = f"no single attack that names its targets and reads {reads}"
    vacuous = "; the ceiling is vacuous: its candidates are too few" if found.vacuous else ""
    reached = f"{found.attack} reached {_spread(found.reached)}"
    return f"{reached}, and {who} exceeds {_spread(found.ceiling)}{vacuous}"


def _spread(value: Number) -> str:
    return f"{value.value:.2f} dB [{value.low:.2f}, {value.high:.2f}]"

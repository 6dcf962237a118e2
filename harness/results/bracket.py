"""What was reached beside what nothing exceeds, and what is proven: leakage from both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.results.material import Group
from harness.results.numbers import combined, number
from harness.results.view import Bracket, Number
from harness.scoring.ceilings import Proven
from harness.store.bounds import BLIND, IDENTIFICATION, Bounded, Budget, bounded, budget_of

Held = tuple[int, Bounded]
"""Of one seed: what one attack reached, and what bounds it."""


def bracket(groups: Iterable[Group]) -> Bracket | None:
    """The attack that comes nearest to its ceiling, over its seeds; one that says something first.

    Under ceilings that all are vacuous, the one that reached most. None where no attack of a row
    is bounded.
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
    return each.vacuous, (0 if each.vacuous else each.ceiling.value) - each.reached.value


def _of_group(group: Group) -> Iterator[Bracket]:
    found: dict[tuple[str, str], list[Held]] = {}
    for record in group.counted:
        for attack, each in bounded(record):
            found.setdefault((attack, each.reached.bound), []).append((record.request.seed, each))
    for (attack, _), held in found.items():
        yield _over_seeds(attack, held)


def _over_seeds(attack: str, held: list[Held]) -> Bracket:
    every = [each for _, each in held]
    return Bracket(
        attack=attack,
        reached=combined([number(e.reached.value, e.reached.interval) for e in every]),
        ceiling=combined([_number(e.ceiling) for e in every]),
        labels=every[0].labels,
        vacuous=any(each.vacuous for each in every),
        blind=_combined(each.beside(BLIND) for each in every),
        identification=_combined(each.beside(IDENTIFICATION) for each in every),
        seeds=tuple(seed for seed, _ in held),
    )


def _number(proven: Proven) -> Number:
    return number(proven.value, proven.interval)


def _combined(proven: Iterable[Proven | None]) -> Number | None:
    """None where it is not told of every seed."""
    found = list(proven)
    told = [_number(each) for each in found if each]
    return combined(told) if told and len(told) == len(found) else None


def budget(groups: Iterable[Group]) -> Budget | None:
    """What is proven of a row's release: of several seeds that with the largest epsilon."""
    found = (budget_of(record) for group in groups for record in group.ok)
    return max(filter(None, found), key=lambda each: each.epsilon, default=None)


def proven(found: Budget) -> str:
    """`(2, 1e-05)-differential privacy: replace one image by another of its class`."""
    return f"({found.epsilon:.3g}, {found.delta:g})-differential privacy: {found.adjacency}"


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

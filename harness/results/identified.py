"""How well a row's attacks tell its images among candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.results.material import Group
from harness.results.numbers import combined, number, percent, share
from harness.results.view import Identified
from harness.scoring.identification import Identification
from harness.scoring.verdict import FoundOut
from harness.store.record import RunRecord


def identified(groups: Iterable[Group]) -> Identified | None:
    """The best of them: one that surely does before others, then by what comes first."""
    every = (each for group in groups for each in _of_group(group))
    return max(every, key=_standing, default=None)


def _standing(each: Identified) -> tuple[bool, float, float]:
    return each.sure, each.top1.value - each.top1_chance, each.auc.value


def _of_group(group: Group) -> Iterator[Identified]:
    """What each of its attacks found, over the seeds; a suite has several."""
    found: dict[str, dict[int, Identification]] = {}
    for record in group.counted:
        for attack, each in _told(group.attack, record):
            found.setdefault(attack, {})[record.request.seed] = each
    model = group.cell.request.threat_model
    return (_over_seeds(attack, model, by_seed) for attack, by_seed in found.items())


def _told(attack: str, record: RunRecord) -> Iterator[tuple[str, Identification]]:
    if record.identification:
        yield attack, record.identification
    for name, member in record.members.items():
        if member.identification:
            yield name, member.identification


def names_images(record: RunRecord) -> bool:
    """Whether any of a record's attacks surely tells its images among candidates."""
    told = _told(record.request.attack, record)
    return any(FoundOut(each, {}).identifies for _, each in told)


def _over_seeds(attack: str, model: str, by_seed: dict[int, Identification]) -> Identified:
    every = list(by_seed.values())
    first = every[0]
    return Identified(
        attack=attack,
        threat_model=model,
        top1=combined([number(each.top1, each.top1_ci) for each in every]),
        top1_chance=first.top1_chance,
        auc=combined([number(each.auc, each.auc_ci) for each in every]),
        auc_chance=first.auc_chance,
        candidates=first.candidates,
        n=sum(each.n for each in every),
        asked=first.asked,
        seeds=tuple(by_seed),
    )


def in_words(found: Identified) -> str:
    """`an image first in 50.0% [43.1, 56.9] of 200 encodings among 2000 candidates, …`."""
    return (
        f"a true image first for {share(found.top1)} of {found.n} {found.asked}, among "
        f"{found.candidates} candidates (chance {percent(found.top1_chance)}; AUC "
        f"{found.auc.value:.3f}, chance {found.auc_chance:g})"
    )

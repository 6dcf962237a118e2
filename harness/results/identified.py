"""How well attacks tell a row's images among candidates: its own, or those of fewer rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.results.material import Group, Line
from harness.results.numbers import combined, number, percent, share
from harness.results.view import Identified
from harness.scoring.identification import Identification
from harness.scoring.verdict import FoundOut
from harness.store.record import RunRecord

SHARED = ("dataset", "public", "public_size", "space", "preset")
"""What a release in more rounds has in common with one in fewer, beside its defense."""


def identified(line: Line, among: Iterable[Line] = ()) -> Identified | None:
    """The best of a row's attacks, else the best of its defense's rows in fewer rounds.

    One that surely identifies comes before others, then it is by what comes first. A release of
    twenty rounds contains one of a single round: whoever is named in that is named in both. A list
    of candidates for fewer private images is shorter, and no harder.
    """
    own = _best(line.groups)
    if own:
        return own
    fewer = (_from(each) for each in among if _within(each, line))
    return max(filter(None, fewer), key=_standing, default=None)


def _best(groups: Iterable[Group]) -> Identified | None:
    every = (each for group in groups for each in _of_group(group))
    return max(every, key=_standing, default=None)


def _from(line: Line) -> Identified | None:
    found = _best(line.groups)
    rounds = line.groups[0].cell.request.rounds if line.groups else None
    return found.model_copy(update={"fewer_rounds": rounds}) if found else None


def _within(one: Line, other: Line) -> bool:
    """Whether the other's release contains one like this: more rounds, of no more images."""
    if one.defense != other.defense or not (one.groups and other.groups):
        return False
    few, more = one.groups[0].cell.request, other.groups[0].cell.request
    alike = all(getattr(few, name) == getattr(more, name) for name in SHARED)
    return alike and few.rounds < more.rounds and few.sizes.private >= more.sizes.private


FEWER = "from fewer rounds"
"""The mark of what was named in a part of the release."""


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
    told = "" if found.fewer_rounds is None else f"; {FEWER}: {found.fewer_rounds}"
    return (
        f"a true image first for {share(found.top1)} of {found.n} {found.asked}, among "
        f"{found.candidates} candidates (chance {percent(found.top1_chance)}; AUC "
        f"{found.auc.value:.3f}, chance {found.auc_chance:g}{told})"
    )

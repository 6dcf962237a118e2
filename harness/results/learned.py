"""What was learned from a row's releases: every learner, and a curve over private images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean

from harness.boards.answering import MISSING
from harness.results.material import Group, Line
from harness.results.numbers import combined, number, ratio, rounded
from harness.results.trust import Controls
from harness.results.view import Learned, LearnerView, Number, Standing
from harness.scoring.utility import Utility, together
from harness.store.record import Used

Size = tuple[int, int]
"""Rounds and private images."""


def curve_of(line: Line, controls: Controls) -> list[Learned]:
    """A row's accuracies by rounds, then by private images; that of the row itself is among them.

    Where nothing was learned, the reason stands in place of the accuracy.
    """
    every = sorted([*line.groups, *line.beside, *line.alone], key=_size)
    return [_learned(size, list(groups), controls) for size, groups in groupby(every, _size)]


def size_of(line: Line) -> Size:
    """At which the row's leakage is judged."""
    return _size([*line.groups, *line.beside, *line.alone][0])


def _size(group: Group) -> Size:
    asked = group.cell.request
    return asked.rounds, asked.sizes.private


def _learned(size: Size, groups: Sequence[Group], controls: Controls) -> Learned:
    found = utilities(groups)
    every = [record.learners for group in groups for record in group.counted]
    used = [record for group in groups for record in group.records if group.cell.alone]
    rounds, private = size
    return Learned(
        rounds=rounds,
        private_size=private,
        accuracy=over_seeds(number(u.accuracy, u.interval) for u in found.values()),
        reference=over_seeds(map(_reference, found.values())),
        chance=rounded(fmean(each.chance for each in found.values())) if found else None,
        learners=tuple(
            view.model_copy(update={"control": _control(view.name, every, controls)})
            for view in _learners(list(found.values()))
        ),
        seeds=tuple(found),
        reason="" if found else _why(groups),
        records=tuple(record.id for record in used),
    )


def utilities(groups: Sequence[Group]) -> dict[int, Utility]:
    """By seed, what was learned: of several records, by all learners that they name."""
    found: dict[int, list[Utility]] = {}
    for record in (record for group in groups for record in group.counted):
        if record.utility:
            found.setdefault(record.request.seed, []).append(record.utility)
    return {seed: together(each) for seed, each in sorted(found.items())}


def _reference(utility: Utility) -> Number | None:
    if utility.reference_accuracy is None:
        return None
    return number(utility.reference_accuracy, utility.reference_interval)


def over_seeds(values: Iterable[Number | None]) -> Number | None:
    """The mean of those that there are."""
    found = [value for value in values if value]
    return combined(found) if found else None


def _learners(found: Sequence[Utility]) -> Iterable[LearnerView]:
    """Every learner of any seed, the chosen first, then by accuracy, then those left out."""
    tried = dict.fromkeys(name for u in found for name, _ in u.own_first)
    views = [_learner(name, found) for name in tried]
    views.sort(key=lambda v: (not v.chosen, -(v.accuracy.value if v.accuracy else 0.0)))
    reasons = {name: why for u in found for name, why in u.left_out.items() if name not in tried}
    return [*views, *(LearnerView(name=n, reason=why) for n, why in sorted(reasons.items()))]


def _control(name: str, every: Sequence[Mapping[str, Used]], controls: Controls) -> Standing | None:
    used = [learners[name] for learners in every if name in learners]
    return controls.of_learners(used) if used else None


def _learner(name: str, found: Sequence[Utility]) -> LearnerView:
    own = [u.accuracies[name] for u in found if name in u.accuracies]
    chosen_by = [u.validation[name] for u in found if name in u.validation]
    return LearnerView(
        name=name,
        accuracy=over_seeds(number(each.mean, each.interval) for each in own),
        validation=rounded(fmean(chosen_by)) if chosen_by else None,
        chosen=any(u.inference == name for u in found),
    )


def _why(groups: Sequence[Group]) -> str:
    """Why there is no accuracy."""
    records = [record for group in groups for record in group.records]
    reasons = [record.error for record in records if record.error]
    return reasons[0] if reasons else "" if records else MISSING


def retained(line: Line) -> Number | None:
    """The row's accuracy over that without protection, seed by seed."""
    own = [
        group
        for group in (*line.groups, *line.beside, *line.alone)
        if _size(group) == size_of(line)
    ]
    pairs = [
        (number(u.accuracy, u.interval), bare)
        for u in utilities(own).values()
        if (bare := _reference(u)) and bare.value
    ]
    return over_seeds(ratio(mean, bare) for mean, bare in pairs)

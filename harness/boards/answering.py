"""Whether a record answers its cell as that is asked today. Pure.

Who fills a board and who draws it both ask here, so that both count the same cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from harness.api.errors import UsageError
from harness.asking.plan import Cell, plan
from harness.asking.registry import Registry
from harness.asking.request import Resolved
from harness.store.record import RunRecord, Used

MISSING, AGAIN = "not run yet", "to run again"
"""Of cells: without a record, and with one of which versions or options have moved on."""


def lacking(missing: int, again: int) -> str:
    """What is still to run, in the words of every page and plan; empty where nothing is.

    `7 cells not run yet, 2 to run again`.
    """
    counts = [(n, words) for n, words in ((missing, MISSING), (again, AGAIN)) if n]
    nouns = ["cell " if n == 1 else "cells " for n, _ in counts[:1]] + [""]
    return ", ".join(f"{n} {noun}{words}" for (n, words), noun in zip(counts, nouns, strict=False))


def answered_by(planned: Cell, record: RunRecord) -> bool:
    """Whether a record is of this very cell: plugins, versions and options are what they were."""
    return not moved(planned, record)


def moved(planned: Cell, record: RunRecord) -> list[str]:
    """The plugins that a cell and a record of it do not have alike, by name."""
    pairs = [
        *_pairs(planned, record),
        *_of_members(planned, record),
        *_of_learners(planned, record),
    ]
    differing = (now or then for now, then in pairs if not _same(now, then))
    return sorted({each.name for each in differing if each})


def moved_on(record: RunRecord, registry: Registry) -> list[str]:
    """The same of the cell that a record's own request asks for, as it would be planned here.

    None where that cannot be planned, for want of somebody's plugin: nobody here runs it again.
    """
    try:
        planned = plan(record.request, registry)
    except UsageError:
        return []
    return moved(planned, record)


Pair = tuple[Resolved | None, Used | None]


def _pairs(planned: Cell, record: RunRecord) -> list[Pair]:
    return [
        *zip_longest(planned.defenses, record.defense),
        (planned.attack, record.attack),
        (planned.dataset, record.dataset),
        (planned.public, record.public),
        (planned.victim, record.victim),
        (planned.space, record.space),
    ]


def _of_learners(planned: Cell, record: RunRecord) -> Iterator[Pair]:
    """Those who learned from the release, where any did."""
    if record.status != "ok" or planned.request.only == "privacy" or not planned.learns:
        return
    for name in planned.learners.keys() | record.learners.keys():
        yield planned.learners.get(name), record.learners.get(name)


def _of_members(planned: Cell, record: RunRecord) -> Iterator[Pair]:
    """The attacks of a suite, where it came to an end; those left out have no options."""
    if record.status != "ok":
        return
    there = {name: each.attack for name, each in record.members.items()}
    for name in {*planned.members, *there} - {*planned.excluded}:
        now = planned.members.get(name)
        yield now.attack if now else None, there.get(name)
    yield from ((planned.attack, None) for name in planned.excluded if name not in there)


def _same(now: Resolved | None, then: Used | None) -> bool:
    if now is None or then is None:
        return now is None and then is None
    asked = (now.name, now.spec.version, now.config.model_dump(mode="json"))
    return asked == (then.name, then.version, then.config)

"""What papers claim, beside what was measured here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.results.seeds import combined, number
from harness.results.view import ClaimView, Number

if TYPE_CHECKING:
    from harness.boards.protocol import Claim
    from harness.results.groups import Group
    from harness.results.rows import Shown

ACCURACY = "accuracy"
"""A claim's metric that is not of an attack."""


def claim_view(claim: Claim, rows: Sequence[Shown]) -> ClaimView:
    """A claim beside the first cell of its defense and attack that has such a number.

    Its metric is an image metric, a finding, or `accuracy`, which no attack decides.
    """
    found = (_measured(claim, row) for row in rows if row.line.defense == claim.defense)
    return ClaimView(
        defense=claim.defense,
        attack=claim.attack,
        metric=claim.metric,
        claimed=claim.value,
        measured=next(filter(None, found), None),
        source=claim.source,
        note=claim.note,
    )


def _measured(claim: Claim, row: Shown) -> Number | None:
    if claim.metric == ACCURACY:
        return row.view.accuracy
    for group, cell in zip(row.line.groups, row.view.cells, strict=True):
        if group.attack == claim.attack:
            leak = cell.leaks.get(claim.metric)
            return leak.mean if leak else _found(claim.metric, group)
    return None


def _found(name: str, group: Group) -> Number | None:
    seeds = [r.findings[name] for r in group.counted if name in r.findings]
    return combined([number(each.value, each.ci) for each in seeds]) if seeds else None

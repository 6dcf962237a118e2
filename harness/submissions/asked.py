"""What follows from what was asked alone: whether a cell can be, and whether its result counts.

Nothing runs. Of plugins that are not installed nothing follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.api.errors import UsageError
from harness.submissions.verdict import Note

if TYPE_CHECKING:
    from harness.asking.plan import Cell
    from harness.boards.protocol import Board
    from harness.store.record import RunRecord

UNRANKED = "unranked"
"""The flag of results that do not count."""
UNCONFIRMED = (
    "it says that its attack does not apply, which only running it again (--rerun) can tell; the "
    "board's `confirmed` does not list it"
)


def of_absence(record: RunRecord, board: Board) -> Iterator[Note]:
    """That a cell cannot be follows from planning it; what was found at work is to be confirmed."""
    if record.status != "not_applicable" or record.id in board.confirmed:
        return
    if not ruled_out(record):
        yield "cannot", UNCONFIRMED


def ruled_out(record: RunRecord) -> bool:
    """Whether planning a record's cell finds that it cannot be."""
    cell = _planned(record)
    return cell is not None and cell.reason is not None


def of_counting(record: RunRecord) -> Iterator[Note]:
    """A result is left out of the count for what was asked, and for nothing else."""
    if record.status != "ok":
        return
    flagged = any(flag.name == UNRANKED for flag in record.flags)
    try:
        reasons = _uncounted(record)
    except UsageError as error:
        if flagged:
            yield "cannot", f"whether it is rightly flagged as {UNRANKED}: {error}"
        return
    if flagged and not reasons:
        yield "broken", f"it is flagged as {UNRANKED}, and nothing that was asked makes it so"
    if reasons and not flagged:
        yield "broken", f"it is not flagged as {UNRANKED}: {reasons[0]}"


def of_knowledge(record: RunRecord) -> Iterator[Note]:
    """The attack read what it reads of such a release, and knew what it is then granted."""
    cell = _planned(record)
    if record.status != "ok" or cell is None:
        return
    if cell.reason is not None:
        yield "broken", f"it has scores, and such a cell cannot be: {cell.reason}"
    if not cell.attacks:
        return
    if record.release_kind != cell.kind:
        yield "broken", f"{record.release_kind} were released, and such a cell releases {cell.kind}"
    if {*record.channels_used} != cell.channels:
        named = ", ".join(sorted(cell.channels))
        yield "broken", f"its attack is given {named}, and the record says something else"


def _planned(record: RunRecord) -> Cell | None:
    """The cell of a record; None where its attack or a defense is not to be had as it ran."""
    from harness.asking.plan import plan
    from harness.asking.registry import registry

    try:
        cell = plan(record.request, registry())
    except UsageError:
        return None
    here = {(plugin.name, plugin.spec.version) for plugin in (cell.attack, *cell.defenses)}
    ran = {(used.name, used.version) for used in (record.attack, *record.defense)}
    return cell if here == ran else None


def _uncounted(record: RunRecord) -> list[str]:
    """Why a record's result does not count; UsageError where that is its attack's to say."""
    from harness.asking.plan import one_attack
    from harness.asking.registry import registry
    from harness.running.evaluation import uncounted

    asked, known = record.request, registry()
    model = known.threat_model(asked.threat_model)
    if reasons := uncounted(asked.preset, model):
        return [flag.message for flag in reasons]
    attack = one_attack(asked.attack, asked.preset, known)
    return [flag.message for flag in uncounted(asked.preset, model, attack)]

"""Whether a board's records belong where they lie, and say what follows from themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.boards.cells import cells_of, identity
from harness.boards.freezing import strange
from harness.submissions.cells import places
from harness.submissions.sums import faults

if TYPE_CHECKING:
    from harness.leaderboard.material import Kept, Material

Cells = dict[str, set[str]]
"""By origin, the identities of the cells that may be answered from there."""


def faults_of(material: Material) -> list[str]:
    """Everything that is wrong with a board's records, a line each."""
    open_to = _cells(material)
    found = [fault for kept in material.kept for fault in _faults(kept, material, open_to)]
    return [*found, *_twice(material)]


def _cells(material: Material) -> Cells:
    board = material.board
    found = {"": {cell.identity for cell in cells_of(board)}}
    for each in material.submissions:
        wanted = places(board, each.kind, each.what, each.tracks)
        found[each.name] = {c.identity for place in wanted for cells in place for c in cells}
    return found


def _faults(kept: Kept, material: Material, open_to: Cells) -> Iterator[str]:
    record = kept.record
    name = f"record {record.id[:12]} ({record.request.defense} × {record.request.attack})"
    if identity(record.request) not in open_to[kept.origin]:
        yield f"{name} answers no cell that there is"
    for use in strange(material.board, record):
        yield f"{name} was made with another {use} than the board froze"
    for fault in faults(record):
        yield f"{name}: {fault}"


def _twice(material: Material) -> Iterator[str]:
    """Records that answer the same cell: only one of them can stand on the board."""
    seen: dict[str, list[str]] = defaultdict(list)
    for kept in material.kept:
        seen[identity(kept.record.request)].append(kept.record.id[:12])
    for ids in seen.values():
        if len(ids) > 1:
            yield f"records {', '.join(ids)} answer the same cell"

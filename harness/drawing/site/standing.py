"""Who stands where: rows in the order of a table, their names in the page, who attacked them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from harness.results.leading import leading
from harness.results.numerals import ABSOLUTE
from harness.results.view import BoardView, CellView, Leak, RowView, TrackView


def cells_in_order(row: RowView, metric: str) -> list[CellView]:
    """A row's cells, the strongest attack first, those without a number last."""

    def place(cell: CellView) -> tuple[bool, float, bool, str, str]:
        leak = leading(cell.leaks, metric)
        gain = -leak.gain.value if leak else 0.0
        return leak is None, gain, cell.status != "ok", cell.attack, cell.threat_model

    return sorted(row.cells, key=place)


def threat_models(rows: Iterable[RowView]) -> list[str]:
    """All threat models that rows were attacked under, by name."""
    return sorted({cell.threat_model for row in rows for cell in row.cells})


def strongest_under(row: RowView, model: str, metric: str) -> tuple[str, Leak] | None:
    """Of the attacks under a threat model the one with the largest mean gain, and its leak."""
    cells = [
        (cell.attack, leading(cell.leaks, metric))
        for cell in row.cells
        if cell.threat_model == model
    ]
    found = [(attack, leak) for attack, leak in cells if leak]
    return max(found, key=lambda each: each[1].gain.value, default=None)


def anchors(view: BoardView) -> dict[tuple[str, str], str]:
    """The id of each row in the page, by track and defense: readable, and no two alike."""
    found: dict[tuple[str, str], str] = {}
    for track in view.tracks:
        for row in track.rows:
            found[track.name, row.defense] = _free(f"{track.name}-{row.defense}", found.values())
    return found


def _free(text: str, taken: Iterable[str]) -> str:
    """The text as an id; with a number after it where another text gave the same."""
    name = "row-" + re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
    names, number = {*taken}, 1
    while (name if number == 1 else f"{name}--{number}") in names:
        number += 1
    return name if number == 1 else f"{name}--{number}"


def units(view: BoardView) -> dict[str, str]:
    """The unit of each metric that anything was scored by."""
    return {metric: leak.unit for track in view.tracks for metric, leak in _leaks(track)}


def _leaks(track: TrackView) -> Iterable[tuple[str, Leak]]:
    for row in track.rows:
        for leaks in (row.leaks, *(cell.leaks for cell in row.cells)):
            yield from leaks.items()


def all_threat_models(view: BoardView) -> list[str]:
    """All threat models of a board, by name."""
    return threat_models(row for track in view.tracks for row in track.rows)


def defenses(view: BoardView) -> set[str]:
    """Every defense of a board, options and all."""
    return {row.defense for track in view.tracks for row in track.rows}


def attacks(view: BoardView) -> set[str]:
    """Every attack of a board, options and all."""
    rows = (row for track in view.tracks for row in track.rows)
    return {cell.attack for row in rows for cell in row.cells}


def record_path(cell: CellView, record: str) -> str:
    """Where a record lies, from the board's folder: with its submission if it came with one."""
    home = cell.homes.get(record)
    folder = f"submissions/{home}/" if home else ""
    return f"{folder}records/{record}.json"


def leaks_in_order(leaks: Mapping[str, Leak], metrics: Iterable[str]) -> list[Leak]:
    """Leaks by each metric, after it that on absolute values."""
    names = (name for metric in metrics for name in (metric, metric + ABSOLUTE))
    return [leaks[name] for name in names if name in leaks]

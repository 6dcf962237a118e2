"""Defenses against attacks, as a map of gains: a number in every cell, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from harness.results.numbers import NONE, gained, signed
from harness.results.ranks import attacks_in_order, rows_in_order
from harness.results.view import CellView, Leak, RowView, TrackView

STEPS = {"dB": (0.5, 2.0, 6.0, 15.0), "": (0.02, 0.06, 0.15, 0.4)}
"""Where one colour ends and the next begins, on both sides of zero, by unit."""
WORDS = {
    "ok": "no score",
    "failed": "failed",
    "timeout": "timeout",
    "not_applicable": "n/a",
    "missing": "missing",
}
SILENT = "the attack shows no images that this metric could judge"

Column = tuple[str, str]
"""An attack, and the threat model it worked under."""


@dataclass(frozen=True)
class Tile:
    """One cell. `level` from -4 to 4 is its colour, None without a number; `note` its footnote.

    A dash without a footnote is a cell that the board does not have.
    """

    text: str
    level: int | None = None
    note: int | None = None
    tip: str = ""
    verified: bool = True


@dataclass(frozen=True)
class Heat:
    """The map by one metric: `rows` are defenses with a tile for each column.

    `names` are those of attacks without options, where no other attack has the same. `notes` say
    why cells have no number: a word, the reason, and how many cells.
    """

    columns: tuple[Column, ...]
    names: Mapping[str, str]
    rows: tuple[tuple[RowView, tuple[Tile, ...]], ...]
    notes: tuple[tuple[str, str, int], ...]

    @property
    def several(self) -> bool:
        """Whether attacks worked under more than one threat model."""
        return len({model for _, model in self.columns}) > 1

    @property
    def any_number(self) -> bool:
        """Whether any cell has a number, and with it a colour."""
        return any(tile.level is not None for _, tiles in self.rows for tile in tiles)


def heat_map(track: TrackView, metric: str) -> Heat:
    """All cells of a track by a metric, the strongest attack at the left."""
    columns = _columns(track, metric)
    rows = rows_in_order(track.rows, metric)
    met = Counter(_why(cell) for row in rows for cell in row.cells if not cell.leak(metric))
    numbers = {why: i for i, why in enumerate(met, start=1)}
    cells = [{(cell.attack, cell.threat_model): cell for cell in row.cells} for row in rows]
    tiles = [[_tile(own.get(each), metric, numbers) for each in columns] for own in cells]
    return Heat(
        columns=tuple(columns),
        names=_names({attack for attack, _ in columns}),
        rows=tuple(zip(rows, map(tuple, tiles), strict=True)),
        notes=tuple((*why, count) for why, count in met.items()),
    )


def level(leak: Leak) -> int:
    """The colour of a gain: 0 where it is small, or its interval holds zero."""
    ci = leak.gain.ci
    if ci and ci[0] <= 0 <= ci[1]:
        return 0
    steps = sum(abs(leak.gain.value) >= step for step in STEPS.get(leak.unit, STEPS[""]))
    return steps if leak.gain.value > 0 else -steps


def legend(unit: str) -> list[tuple[int, str]]:
    """Each colour from the lowest, with the gains it stands for."""
    steps = STEPS.get(unit, STEPS[""])
    middle = (0, f"within ±{steps[0]:g}")
    up = [(i, f"{low:g} to {high:g}") for i, (low, high) in enumerate(pairwise(steps), start=1)]
    ends = [(-len(steps), f"−{steps[-1]:g} or less"), (len(steps), f"{steps[-1]:g} or more")]
    down = [(-i, f"−{text.replace(' to ', ' to −')}") for i, text in reversed(up)]
    return [ends[0], *down, middle, *up, ends[1]]


def _columns(track: TrackView, metric: str) -> list[Column]:
    """Attacks in the order of their table, those that it does not have last."""
    ranked = [(each.attack, each.threat_model) for each in attacks_in_order(track.attacks, metric)]
    found = {(cell.attack, cell.threat_model) for row in track.rows for cell in row.cells}
    return [*(each for each in ranked if each in found), *sorted(found - {*ranked})]


def _names(attacks: Collection[str]) -> dict[str, str]:
    bare = {attack: attack.partition("[")[0] for attack in attacks}
    alone = [name for name in bare.values() if [*bare.values()].count(name) == 1]
    return {attack: name if name in alone else attack for attack, name in bare.items()}


def _tile(cell: CellView | None, metric: str, numbers: Mapping[tuple[str, str], int]) -> Tile:
    if cell is None:
        return Tile(NONE)
    leak = cell.leak(metric)
    if leak is None:
        word, reason = why = _why(cell)
        return Tile(word, note=numbers[why], tip=reason)
    text = signed(leak.gain.value, leak.unit)
    return Tile(text, level=level(leak), tip=gained(leak), verified=cell.verified)


def _why(cell: CellView) -> tuple[str, str]:
    """A word and a sentence on a cell without a number."""
    return WORDS[cell.status], cell.reason or (SILENT if cell.status == "ok" else "")

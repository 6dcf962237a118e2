"""Boards as tables of values: leaderboard.csv, a line for each record, and frames for notebooks."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.api.errors import UsageError
from harness.scoring.verdict import main_metric
from harness.store.frame import COLUMNS as OF_RECORDS
from harness.store.frame import TEXT, WHOLE, frame, rows_of
from harness.store.provenance import canonical_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from harness.results.material import Group, Line
    from harness.results.view import (
        BoardView,
        Bracket,
        CellView,
        Identified,
        Leak,
        Learned,
        LearnerView,
        Number,
        RowView,
        TrackView,
    )
    from harness.store.record import RunRecord

Values = dict[str, Any]
Format = Literal["csv", "parquet", "json"]

COLUMNS = (
    *("kind", "board", "track", "defense", "attack", "threat_model", "release"),
    *("status", "reason", "metric", "unit", "leaks_more", "rank"),
    *("accuracy", "accuracy_low", "accuracy_high"),
    *("reference", "reference_low", "reference_high"),
    *("retained", "retained_low", "retained_high"),
    "chance",
    *("mean", "mean_low", "mean_high"),
    "null",
    *("gain", "gain_low", "gain_high"),
    *("worst", "strongest", "seeds", "verified", "flags", "origin", "records"),
    *("private_images", "rounds", "learner", "chosen", "validation"),
    *("identified_by", "top1", "top1_low", "top1_high", "top1_chance"),
    *("auc", "auc_low", "auc_high", "candidates", "identified_in_rounds", "older", "to_run_again"),
    *("reached_by", "reached_db", "reached_low", "reached_high"),
    *("ceiling_db", "ceiling_low", "ceiling_high", "ceiling_reads_labels", "ceiling_vacuous"),
    *("identification_ceiling", "no_ceiling", "epsilon", "delta", "adjacency"),
)
"""Of leaderboard.csv. `kind` is `row`, `cell` or `learner`; lists are parted by spaces.

The `chosen` learners are a row's curve over private images and rounds. `ceiling_db` bounds the
pooled SNR of the one attack that comes nearest to it, never a row's mean; `epsilon` is of one
`adjacency`, and budgets of two do not compare.
"""
OF_BOARDS = {
    **dict.fromkeys(("board", "track"), TEXT),
    **OF_RECORDS,
    "rank": WHOLE,
    "verified": "boolean",
    "origin": TEXT,
}
"""Of a board's frame: those of records, and where the record stands.

`rank` is that of the defense in its track by the row's metric, missing where it has none;
`verified` says it of the defense's attack here; `origin` is the submission that it came with.
"""


def as_csv(view: BoardView) -> str:
    """leaderboard.csv: a line for each row and metric, and for each cell, in the table's order."""
    text = StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for track in view.tracks:
        for row in track.rows:
            for line in _lines(view, track, row):
                writer.writerow({name: as_text(value) for name, value in line.items()})
    return text.getvalue()


FORMULA = ("=", "+", "-", "@", "\t", "\n", " ")
"""What a spreadsheet takes for the beginning of a formula, or passes over on its way there."""


def as_text(value: Any) -> Any:
    """A cell of CSV that no spreadsheet computes: `'` before a text that would begin a formula.

    A carriage return, which the csv module does not quote, would begin another line.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")
    return f"'{text}" if text.startswith(FORMULA) else text


def _lines(view: BoardView, track: TrackView, row: RowView) -> Iterator[Values]:
    place = {"board": view.name, "track": track.name, "defense": row.defense}
    for leak in row.leaks.values() or (None,):
        rank = row.rank.get(leak.metric) if leak else None
        yield {**place, **_row(row), **_leak(leak), "rank": rank}
    for cell in row.cells:
        for leak in cell.leaks.values() or (None,):
            yield {**place, **_cell(cell), **_leak(leak)}
    for each in row.curve:
        for learner in each.learners or (None,):
            yield {**place, **_learned(each, learner)}


def _learned(each: Learned, learner: LearnerView | None) -> Values:
    """One learner, or that nobody learned anything yet."""
    of = {
        "kind": "learner",
        "private_images": each.private_size,
        "rounds": each.rounds,
        "reason": each.reason,
        "chance": each.chance,
        **_number("reference", each.reference),
        "seeds": _names(each.seeds),
        "records": _names(each.records),
    }
    if learner is None:
        return of
    same = {"learner": learner.name, "chosen": learner.chosen, "validation": learner.validation}
    return {**of, **same, "reason": learner.reason, **_number("accuracy", learner.accuracy)}


def _row(row: RowView) -> Values:
    return {
        "kind": "row",
        **_number("accuracy", row.accuracy),
        **_number("reference", row.reference),
        **_number("retained", row.retained),
        **{name: getattr(row, name) for name in ("chance", "verified", "origin")},
        "flags": _names(flag.name for flag in row.flags),
        "learner": row.learner,
        **_identified(row.identified),
        "older": _names(row.older),
        "to_run_again": row.again,
        **_bracket(row.bracket),
        "no_ceiling": row.unbounded,
        **(row.budget.model_dump() if row.budget else {}),
    }


def _identified(found: Identified | None) -> Values:
    if found is None:
        return {}
    return {
        "identified_by": found.attack,
        **_number("top1", found.top1),
        "top1_chance": found.top1_chance,
        **_number("auc", found.auc),
        "candidates": found.candidates,
        "identified_in_rounds": found.fewer_rounds,
    }


def _bracket(found: Bracket | None) -> Values:
    if found is None:
        return {}
    (reached_low, reached_high), (low, high) = (
        each.ci or (None, None) for each in (found.reached, found.ceiling)
    )
    return {
        "reached_by": found.attack,
        "reached_db": found.reached.value,
        **{"reached_low": reached_low, "reached_high": reached_high},
        "ceiling_db": found.ceiling.value,
        **{"ceiling_low": low, "ceiling_high": high},
        "ceiling_reads_labels": found.labels,
        "ceiling_vacuous": found.vacuous,
        "identification_ceiling": found.identification and found.identification.value,
    }


def _cell(cell: CellView) -> Values:
    same = ("attack", "threat_model", "status", "reason", "verified", "origin")
    return {
        "kind": "cell",
        "release": cell.release_kind,
        **{name: getattr(cell, name) for name in same},
        "seeds": _names(cell.seeds),
        "flags": _names(flag.name for flag in cell.flags),
        "records": _names(cell.records),
    }


def _leak(leak: Leak | None) -> Values:
    if leak is None:
        return {}
    same = ("metric", "unit", "leaks_more", "null", "worst", "strongest")
    return {
        **{name: getattr(leak, name) for name in same},
        **_number("mean", leak.mean),
        **_number("gain", leak.gain),
        "seeds": _names(leak.seeds),
    }


def _number(name: str, number: Number | None) -> Values:
    low, high = (number.ci if number else None) or (None, None)
    return {name: number.value if number else None, f"{name}_low": low, f"{name}_high": high}


def _names(values: Iterable[Any]) -> str:
    return " ".join(map(str, dict.fromkeys(values)))


def one_line(record: RunRecord) -> str:
    """A record in a line: the cell, what leaked, what was learned, its id."""
    asked = record.request
    cell = f"{asked.defense} × {asked.attack}"
    if asked.only == "utility":
        times = "once" if asked.rounds == 1 else f"{asked.rounds} times"
        cell = f"{asked.defense}, {asked.sizes.private} images {times}"
    seed = f" seed {record.request.seed}" if record.request.seed else ""
    return f"{record.id[:12]}  {cell:<58} {record.dataset.name}{seed}  {_result(record)}"


def _result(record: RunRecord) -> str:
    if record.status != "ok":
        return record.ending
    parts = []
    if name := main_metric(record.privacy):
        score = record.privacy[name]
        ci = score.gain_ci
        reach = f" [{ci[0]:+.3g}, {ci[1]:+.3g}]" if ci else ""
        parts.append(f"{name} {score.mean:.3g}, gain {score.gain:+.3g}{reach}")
    if record.utility:
        parts.append(f"accuracy {record.utility.accuracy:.3f}")
    return "  ".join(parts) or record.verdict


def load_board(board: str | Path) -> DataFrame:
    """A board's records as a table: a row for each record and metric that it has a score of.

    `board` is a name below `leaderboards/` here or of a board that came with the package, or a
    board's folder. A cell without a record has
    one row, whose status is `missing`; a record without scores has one too. Columns are those of
    `OF_BOARDS`. UsageError where there is no such board, IntegrityError where a record was changed.
    """
    from harness.boards.folder import find_board
    from harness.results.build import board_view
    from harness.results.material import gathered, lines

    material = gathered(find_board(str(board), shipped=True))
    view = board_view(material)
    rows = {(row.track, row.defense): row for row in view.rows}
    found = (
        {"board": view.name, "track": line.track, **values}
        for line in lines(material)
        for values in _of_line(line, rows[line.track, line.defense])
    )
    return frame(found, OF_BOARDS)


def _of_line(line: Line, row: RowView) -> Iterator[Values]:
    """A row's cells, record by record."""
    for group, cell in zip(line.groups, row.cells, strict=True):
        for seed, kept in sorted(group.seeds.items()):
            scores = rows_of(kept.record) if kept else [_missing(group, seed)]
            origin = (kept.origin if kept else "") or group.origin
            for values in scores:
                rank = row.rank.get(values.get("metric", ""))
                yield {**values, "rank": rank, "verified": cell.verified, "origin": origin}
    for group in line.alone:
        for seed, kept in sorted(group.seeds.items()):
            for values in rows_of(kept.record) if kept else [_missing(group, seed)]:
                yield {**values, "origin": group.origin}


def _missing(group: Group, seed: int) -> Values:
    asked = group.cell.request
    same = ("defense", "dataset", "space", "victim", "threat_model", "rounds")
    attack = None if group.cell.alone else asked.attack
    found = {name: getattr(asked, name) for name in same}
    return {"status": "missing", "seed": seed, "attack": attack, **found}


def _texts(table: DataFrame) -> list[str]:
    return [name for name in table.columns if OF_BOARDS.get(name) == TEXT]


def exported(table: DataFrame, form: Format) -> bytes:
    """A table as a file. UsageError where parquet is asked for and pyarrow is not installed."""
    if form == "csv":
        guarded = table.assign(**{n: table[n].map(as_text) for n in _texts(table)})
        text: str = guarded.to_csv(index=False, lineterminator="\n")
        return text.encode()
    if form == "json":
        values = table.astype(object).where(table.notna(), None)  # what is missing is null
        return canonical_json(values.to_dict("records")).encode() + b"\n"
    buffer = BytesIO()
    try:
        table.to_parquet(buffer, engine="pyarrow", index=False)
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: "
            "`pip install 'encoding-harness[parquet]'`, or take --format csv."
        ) from None
    return buffer.getvalue()

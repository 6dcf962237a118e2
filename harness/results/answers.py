"""Which answers a board keeps: of each row, what its strongest attack brought back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.boards.folder import BoardFolder
from harness.results.view import BoardView, RowView
from harness.store import Store
from harness.store.answers import BOARD, CELL, TARGETS, Answer, bytes_of, read_answer
from harness.store.paths import disk_errors, listed, write_atomically
from harness.store.record import Records, RunRecord
from harness.submissions.checks import control_records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.generic]

ASIDE = 1000
"""Bytes of a file that are no answers."""


@dataclass(frozen=True)
class Keeping:
    """What became of a board's answers: files written and removed, and rows without any."""

    changed: tuple[Path, ...] = ()
    kept: int = 0
    lacking: int = 0
    targets: int = TARGETS


def keep_answers(folder: BoardFolder, view: BoardView, cache: Path) -> Keeping:
    """Keep the answers of every row's strongest attack, as far as the cache or the board has them.

    An answer that is larger than its share of the bytes that a board may take keeps fewer targets.
    What belongs to no row any more is removed.
    """
    room = BOARD - folder.control_cells.answer_bytes
    records = [record for names in strongest(view) if (record := _first(folder, names))]
    share = min(CELL, room // max(1, len(records))) - ASIDE
    changed, kept, fewest = [], 0, TARGETS
    for record in records:
        path, answer = folder.answer_path(record.id), _answer(folder, record, cache, share)
        if answer is None:
            continue
        kept, fewest = kept + 1, min(fewest, len(answer))
        data = answer.to_bytes()
        with disk_errors(path):
            same = path.is_file() and path.read_bytes() == data
        if not same:
            write_atomically(path, data)
            changed.append(path)
    wanted = {folder.answer_path(record.id) for record in records}
    for path in folder.answer_paths:
        if path not in wanted:
            with disk_errors(path):
                path.unlink()
            changed.append(path)
    return Keeping(tuple(changed), kept, len(records) - kept, fewest)


def keep_control_cells(folder: BoardFolder, cache: Path) -> None:
    """Keep the records and answers of the cells that the board's reports on controls name.

    Those that the cache does not have stay as they are; what no report names is removed.
    """
    cells, named = folder.control_cells, control_records(folder)
    for name in named:
        path = Records(cache).path(name)
        with disk_errors(path):
            there = path.is_file()
        if there:
            record = Records(cache).load(path)
            cells.keep(record)
            if answer := _cached(record, cache, CELL - ASIDE):
                write_atomically(cells.answer_path(name), answer.to_bytes())
    for path in listed(cells.path / "records", ".json"):
        if path.stem not in named:
            cells.drop(path.stem)


def strongest(view: BoardView) -> list[tuple[str, ...]]:
    """By row, the records of its strongest attack, by the first metric that there is."""
    rows = (row for track in view.tracks for row in track.rows)
    return list(dict.fromkeys(filter(None, (_strongest(row, view.metrics) for row in rows))))


def _strongest(row: RowView, metrics: tuple[str, ...]) -> tuple[str, ...]:
    leak = next(filter(None, map(row.leak, metrics)), None)
    for cell in row.cells:
        if leak and cell.attack == leak.strongest and cell.leaks:
            return tuple(name for name in cell.records if name not in cell.homes)
    return ()


def _first(folder: BoardFolder, names: tuple[str, ...]) -> RunRecord | None:
    """The first of them whose attack showed images."""
    records = (folder.load(folder.records.path(name)) for name in names)
    return next((record for record in records if record.by_image), None)


def _answer(folder: BoardFolder, record: RunRecord, cache: Path, share: int) -> Answer | None:
    """What the cache has of a record, else what the board has, of as many targets as fit."""
    found = _cached(record, cache, share)
    path = folder.answer_path(record.id)
    with disk_errors(path):
        if found is None and path.is_file():
            there = read_answer(path)
            found = there.first(_targets(there.images, there.images_abs, share))
    return found if found is not None and len(found) else None


def _targets(images: Values, images_abs: Values | None, share: int) -> int:
    return max(0, min(TARGETS, share // bytes_of(images, images_abs)))


def _cached(record: RunRecord, cache: Path, share: int) -> Answer | None:
    """Rounded from what the judge stored; None where that is not in the cache to the byte."""
    stored = record.artifacts.get("judge")
    if stored is None or not record.by_image:
        return None
    path = Store(cache).tensors_path("judge", stored.key)
    with disk_errors(path):
        data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        return None
    from safetensors.numpy import load

    tensors = load(data)
    images, found, folded = tensors["images"], tensors["found"], tensors.get("images_abs")
    if not (count := _targets(images, folded, share)):
        return None
    return Answer.of(images[:count], found[:count], None if folded is None else folded[:count])

"""The files that a board's records give, and whether they lie there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from harness.api.errors import IntegrityError
from harness.boards.folder import BoardFolder
from harness.boards.signing import private_keys
from harness.drawing import markdown
from harness.drawing.curves import curves_of
from harness.drawing.pages import render, render_index
from harness.drawing.plane import front_of
from harness.drawing.png import curves_png, plane_png
from harness.results.build import board_view
from harness.results.material import gathered
from harness.results.tables import as_csv
from harness.results.view import BoardView
from harness.store.paths import cache_root, disk_errors, write_atomically
from harness.submissions.checks import Verdict
from harness.submissions.folder import SubmissionFolder
from harness.submissions.siblings import disagreements
from harness.submissions.verification import Verifier

Files = dict[str, bytes]
"""By name below a folder."""
LIKENESS = 0.001
"""Share of a picture's pixels that another machine's fonts may change."""


def files_of(view: BoardView) -> Files:
    """A board's table, values, page and pictures."""
    front, curves = front_of(view), curves_of(view)
    return {
        "README.md": markdown.readme(view).encode(),
        "leaderboard.csv": as_csv(view).encode(),
        "index.html": render(view).encode(),
        **({markdown.FRONT: plane_png(front)} if front else {}),
        **({markdown.CURVE: curves_png(curves)} if curves else {}),
    }


def index_of(views: Sequence[BoardView]) -> Files:
    """The table and page over all boards."""
    return {"README.md": markdown.index(views).encode(), "index.html": render_index(views).encode()}


def write(folder: Path, files: Files) -> list[Path]:
    """Each file whole or not at all; those that are right already are left alone."""
    names = differing(folder, files)
    for name in names:
        write_atomically(folder / name, files[name])
    return [folder / name for name in names]


def differing(folder: Path, files: Files) -> list[str]:
    """Names of files that are not there, or are not what they should be."""
    found = []
    for name, data in files.items():
        with disk_errors(folder / name):
            there = (folder / name).read_bytes() if (folder / name).is_file() else None
        if there != data and not (there and name.endswith(".png") and _alike(there, data)):
            found.append(name)
    return found


def _alike(one: bytes, other: bytes) -> bool:
    """Whether two pictures show the same."""
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        pixels = [np.asarray(Image.open(BytesIO(data)).convert("L"), int) for data in (one, other)]
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        return False
    if pixels[0].shape != pixels[1].shape:
        return False
    return bool((np.abs(pixels[0] - pixels[1]) > 64).mean() <= LIKENESS)


@dataclass(frozen=True)
class Report:
    """What is wrong with one board, or with the index over all; `missing` counts cells.

    `older` counts the rows that are made of something older, `again` the cells that are to run
    again: those are no fault. `signed` names who signed the board, "" nobody.
    """

    name: str
    records: int
    missing: int
    faults: tuple[str, ...]
    open: bool = False
    older: int = 0
    again: int = 0
    signed: str | None = None

    def wrong(self, complete: bool) -> bool:
        """Whether anything is; missing cells are only where it must be `complete`."""
        return bool(self.faults or (complete and self.missing))


def checked(folder: BoardFolder) -> tuple[Report, BoardView]:
    """One board: its records, and whether its files are what they give."""
    view = board_view(gathered(folder))
    faults = broken(folder) + _stale(folder.path, differing(folder.path, files_of(view)))
    faults += _keys(folder.path)
    return Report(
        name=view.name,
        records=view.records,
        missing=view.missing,
        faults=tuple(faults),
        open=view.stage == "open",
        older=sum(bool(row.older) for row in view.rows),
        again=view.again,
        signed=view.signer,
    ), view


def checked_index(root: Path, views: Sequence[BoardView]) -> Report:
    """The table and the page over all boards."""
    faults = _stale(root, differing(root, index_of(views)))
    faults += _keys(root, [view.name for view in views])
    return Report(str(root), 0, 0, tuple(faults))


def _keys(folder: Path, apart: Collection[str] = ()) -> list[str]:
    return [
        f"{path} holds a private key: take it out, also of the history, and draw another"
        for path in private_keys(folder, apart)
    ]


def check_agreement(folder: BoardFolder) -> None:
    """IntegrityError where records of a board, or of one submission, disagree: none is shown."""
    for each in (folder, *map(SubmissionFolder, folder.submissions)):
        for found in disagreements(each.kept()):
            raise IntegrityError(
                f"{each.path}: {found}. Remove the wrong one and run its cell again."
            )


def broken(folder: BoardFolder) -> list[str]:
    """What verifying finds broken, of the board and of all that was submitted to it."""
    with Verifier(cache_root(), judge=False) as verifier:
        found = [each for each in verifier.verify(str(folder.path)) if each.outcome == "broken"]
    return [f"{each.what} {_named(each)}: {note}" for each in found for note in each.notes]


def _named(found: Verdict) -> str:
    name = Path(found.path).stem
    return f"{name[:12]} ({found.title})" if found.what == "record" else name


def _stale(folder: Path, names: Sequence[str]) -> list[str]:
    return [
        f"{folder / name} is not what the records give: run `harness leaderboard build`"
        for name in names
    ]

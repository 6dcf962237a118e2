"""The files that a board's records give, and whether they lie there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

from harness.drawing import markdown
from harness.drawing.front import front_of
from harness.drawing.sheet import as_csv
from harness.results.view import BoardView
from harness.store.paths import disk_errors, write_atomically

Files = dict[str, bytes]
"""By name below a folder."""
LIKENESS = 0.001
"""Share of a picture's pixels that another machine's fonts may change."""


def files_of(view: BoardView) -> Files:
    """A board's table, values, page and picture."""
    from harness.drawing.chart import plane_png
    from harness.drawing.site import render

    front = front_of(view)
    picture = {markdown.FRONT: plane_png(front)} if front else {}
    texts = {
        "README.md": markdown.readme(view),
        "leaderboard.csv": as_csv(view),
        "index.html": render(view),
    }
    return {**_encoded(texts), **picture}


def index_of(views: Sequence[BoardView]) -> Files:
    """The table and page over all boards."""
    from harness.drawing.site import render_index

    return _encoded({"README.md": markdown.index(views), "index.html": render_index(views)})


def _encoded(texts: Mapping[str, str]) -> Files:
    return {name: text.encode() for name, text in texts.items()}


def write(folder: Path, files: Files) -> list[Path]:
    """Each file whole or not at all; those that are right already are left alone."""
    names = differing(folder, files)
    for name in names:
        write_atomically(folder / name, files[name])
    return [folder / name for name in names]


def differing(folder: Path, files: Files) -> list[str]:
    """Names of files that are not there, or are not what they should be."""
    return [name for name, data in files.items() if not _same(folder / name, data)]


def _same(path: Path, data: bytes) -> bool:
    with disk_errors(path):
        if not path.is_file():
            return False
        there = path.read_bytes()
    return there == data or (path.suffix == ".png" and _alike(there, data))


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

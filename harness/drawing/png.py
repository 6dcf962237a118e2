"""Writing a figure so that the same figure gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from harness.store.paths import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160


def write_png(path: Path, draw: Callable[[], Figure]) -> None:
    """Write what `draw` makes, whole or not at all."""
    write_atomically(path, as_png(draw))


def as_png(draw: Callable[[], Figure]) -> bytes:
    """The file of what `draw` makes."""
    import matplotlib

    buffer = BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own style must not change the bytes
        draw().savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()

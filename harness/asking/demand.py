"""What a cell would take at the very least, before anything is loaded: absurd sizes are refused.

Nobody knows yet how large an image is, so a small one stands for all, and a fast machine for
whatever there is: what is refused here is out of reach for certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api.errors import UsageError
from harness.api.knowledge import OF_BATCHES, ReleaseKind

if TYPE_CHECKING:
    from harness.asking.plan import Cell

IMAGE_BYTES = 28 * 28 * 4
"""Of a small image in float32."""
MOST_BYTES = 10**12
"""More is held nowhere: neither by an attack nor by the owner who trains on it."""
A_SECOND = 10**6
"""So many images are encoded, or trained on, in a second at best."""
DAY = 86_400
MOST_DAYS = 7


def check_demand(cell: Cell) -> None:
    """UsageError where a cell would take more than there is anywhere; says how much that is."""
    request, sizes = cell.request, cell.request.sizes
    encoded = cell.encoding is not None or cell.kind is ReleaseKind.ENCODINGS
    rounds = request.rounds if encoded else 1
    released = rounds * sizes.private
    what = f"{rounds} round{'s' if rounds > 1 else ''} of {sizes.private} private images"
    if cell.streamed:
        what = f"{what}, encoded and learned from at {A_SECOND:,} a second,"
        _check_days(released / A_SECOND, what, "rounds or private_size")
    else:
        _check_bytes(released, f"{what}, which attacks hold at once,", "rounds or private_size")
    every = sizes.private + sizes.public + sizes.test
    _check_bytes(every, "private, public and test images", "the largest of their sizes")
    if request.only != "privacy":
        _check_days(request.repeats, f"{request.repeats} trainings of a second each", "repeats")
    if cell.kind in OF_BATCHES:
        what = (
            f"{request.victim_epochs} epochs over {sizes.private} images at {A_SECOND:,} a second"
        )
        _check_days(request.victim_epochs * sizes.private / A_SECOND, what, "victim_epochs")


def _check_bytes(images: int, what: str, lower: str) -> None:
    if images * IMAGE_BYTES > MOST_BYTES:
        raise UsageError(
            f"{what} would take {_memory(images * IMAGE_BYTES)} of memory at 28 x 28 values an "
            f"image; more than {_memory(MOST_BYTES)} is refused: lower {lower}"
        )


def _check_days(seconds: float, what: str, lower: str) -> None:
    if seconds > MOST_DAYS * DAY:
        raise UsageError(
            f"{what} would take {seconds / DAY:,.0f} days at the very least; more than "
            f"{MOST_DAYS} is refused: lower {lower}"
        )


def _memory(size: float) -> str:
    """In the largest unit that it fills."""
    for unit in ("GB", "TB", "PB", "EB"):
        if size < 10**12 or unit == "EB":
            break
        size /= 1000
    return f"{size / 10**9:,.3g} {unit}"

"""From image files to arrays of one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import error as StructError

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from harness.api import UsageError

GREY = frozenset(("1", "L", "LA"))
DEEP = frozenset(("F", "I", "I;16", "I;16B", "I;16L"))
"""Pillow's modes of more than eight bits a channel, which it would cut off, not scale."""
# What Pillow's readers of the various formats raise on damaged files.
UNREADABLE = (
    OSError,
    EOFError,
    SyntaxError,
    StructError,
    ValueError,
    Image.DecompressionBombError,
)


@contextmanager
def _reading(path: Path) -> Iterator[Image.Image]:
    """An open image; whatever is wrong with it becomes a UsageError that names the file."""
    try:
        with Image.open(path) as image:
            yield image
    except UNREADABLE as error:
        raise UsageError(f"'folder': {path} cannot be read as an image: {error}") from error


def mode(path: Path) -> str:
    """`L` for a grey image, else `RGB`, told from its header."""
    with _reading(path) as image:
        if image.mode in DEEP:
            raise ValueError("it has more than 8 bits per channel; convert it to 8 bits first")
        return "L" if image.mode in GREY else "RGB"


def _square(image: Image.Image, size: int) -> Image.Image:
    """The shorter side at `size`, and the centre of the longer one."""
    return ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)


def _upright(image: Image.Image) -> Image.Image:
    """Turned as its camera noted; a palette's transparency made plain."""
    turned = ImageOps.exif_transpose(image)
    return turned.convert("RGBA") if turned.mode in {"P", "PA"} else turned


def picture(path: Path, size: int, target: str) -> NDArray[np.uint8]:
    """One image as uint8 [size, size] (`L`) or [size, size, 3] (`RGB`)."""
    with _reading(path) as image:
        return np.asarray(_square(_upright(image).convert(target), size))


def stack(paths: Iterable[Path], size: int, target: str) -> NDArray[np.uint8]:
    """Images [n, c, size, size] uint8."""
    rows = np.stack([picture(path, size, target) for path in paths])
    return rows[:, None] if target == "L" else np.ascontiguousarray(rows.transpose(0, 3, 1, 2))


def moments(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of [n, c, h, w], of values in [0,1]; exact counts."""
    means, deviations = [], []
    values = np.arange(256) / 255
    for channel in images.transpose(1, 0, 2, 3):
        share = np.bincount(channel.ravel(), minlength=256) / channel.size
        mean = float(share @ values)
        means.append(mean)
        deviations.append(float(np.sqrt(share @ (values - mean) ** 2)))
    return tuple(means), tuple(deviations)

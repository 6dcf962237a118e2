"""Images as rows of numbers, at the resolution they are mixed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_plugins.resizing import resize

if TYPE_CHECKING:
    from torch import Tensor


def at_resolution(images: Tensor, resolution: int | None) -> Tensor:
    """Images [n, c, h, w] resized to a square; anything is left alone without a resolution."""
    return images if resolution is None else resize(images, resolution, resolution)


def flat_rows(images: Tensor, resolution: int | None) -> Tensor:
    """[n, d] float32 on the CPU."""
    return at_resolution(images, resolution).flatten(1).cpu()

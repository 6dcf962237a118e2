"""Images as rows of numbers, at the resolution they are mixed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import CellFailed
from harness_plugins.resizing import resize

if TYPE_CHECKING:
    from torch import Tensor


def at_resolution(images: Tensor, resolution: int | None) -> Tensor:
    """Images [n, c, h, w] resized to a square; anything is left alone without a resolution.

    Raises CellFailed for samples that are no images of 1 or 3 channels.
    """
    if resolution is None:
        return images
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise CellFailed(
            f"resolution={resolution} resizes images of 1 or 3 channels; samples of shape "
            f"{tuple(images.shape[1:])} are none."
        )
    return resize(images, resolution, resolution)


def flat_rows(images: Tensor, resolution: int | None) -> Tensor:
    """[n, d] float32 on the CPU."""
    return at_resolution(images, resolution).flatten(1).cpu()

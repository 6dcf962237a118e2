"""Looking at images through moved windows, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch.nn.functional import grid_sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

# Numbers of all the images in work at a time: tens of MB with grids and copies. Smaller blocks are
# nearer the cores, but threads that wait for each other at every step then cost far more.
_BLOCK = 1 << 20


def of_images(shape: Sequence[int]) -> bool:
    """Whether samples of this shape are images [c, h, w], 1 or 3 channels, sides above 4."""
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 4


def blocks(rows: int, numbers: int) -> Iterator[slice]:
    """Spans of `rows`, each of which brings so many `numbers`, that fit in memory together."""
    step = max(1, _BLOCK // max(1, numbers))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def window_at(
    size: Tensor, across: Tensor, down: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Scale and shift of windows of relative `size` [b], placed by `across`, `down` [b] in [0,1].

    In coordinates that run from -1 to 1 over a side; every window lies inside its image.
    """
    free = 1 - size
    return (size, size), ((2 * across - 1) * free, (2 * down - 1) * free)


def axes_of(images: Tensor) -> tuple[Tensor, Tensor]:
    """Centres of the pixels, from -1 to 1 over a side: x [1,1,w] and y [1,h,1]."""
    height, width = images.shape[-2:]
    x = (2 * torch.arange(width, device=images.device) + 1) / width - 1
    y = (2 * torch.arange(height, device=images.device) + 1) / height - 1
    return x.view(1, 1, -1), y.view(1, -1, 1)


def look(images: Tensor, x: Tensor, y: Tensor, outside: Literal["border", "zeros"]) -> Tensor:
    """Images [b, c, h, w] read bilinearly at the places x, y, of or spread to [b, h, w].

    Elementwise arithmetic and one image at a time: the bits are the same on any number of
    threads of one machine; another machine or device may round the last one otherwise.
    """
    shape = (len(images), *images.shape[-2:])
    grid = torch.stack([x.expand(shape), y.expand(shape)], -1)
    return grid_sample(images, grid, mode="bilinear", padding_mode=outside, align_corners=False)

"""What rows that share an image tell each other: max-product on the graph of the mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Block = tuple[slice, slice, Tensor]
    """Rows, candidates for their first place, and the scores [b, f, m] of their pairs."""


def row_beliefs(
    pairs: Callable[[], Iterator[Block]], like: Tensor, images: Tensor | None, sweeps: int
) -> Tensor:
    """[r, 2, m] float32, for r and m as of `like` [r, m]: how each candidate fits each place.

    `pairs` gives scores block by block, anew each time. `images` [r, 2] int64 says which rows
    hold the same image: then each place also gets, of every other row that holds its image, the
    best score that row can reach. Each sweep hears rows one step further away.
    """
    said = _messages(pairs, like, None)
    if images is None or not sweeps:
        return said
    for _ in range(sweeps):
        said = _messages(pairs, like, _heard(said, images))
    return said.add_(_heard(said, images))


def _heard(said: Tensor, images: Tensor) -> Tensor:
    """[r, 2, m]: the sum of what all other rows say of the image in each place."""
    flat, image = said.flatten(0, 1), images.flatten()
    total = flat.new_zeros(int(image.max()) + 1, flat.shape[1]).index_add_(0, image, flat)
    return total[image].sub_(flat).view_as(said)


def _messages(pairs: Callable[[], Iterator[Block]], like: Tensor, heard: Tensor | None) -> Tensor:
    """[r, 2, m]: the best score of each candidate in each place over those in the other place."""
    r, m = like.shape
    best = like.new_full((r, 2, m), -torch.inf, dtype=torch.float32)
    for rows, firsts, scores in pairs():
        first, second = scores, scores
        if heard is not None:
            first = scores + heard[rows, 1].unsqueeze(1)
            second = scores + heard[rows, 0, firsts].unsqueeze(2)
        best[rows, 0, firsts] = first.amax(2)
        torch.maximum(best[rows, 1], second.amax(1), out=best[rows, 1])
    return best.sub_(best.amax(2, keepdim=True))

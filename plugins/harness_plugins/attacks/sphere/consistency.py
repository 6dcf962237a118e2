"""What rows that share an image tell each other: max-product on the graph of the mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Blocks = Callable[[], Iterator[tuple[slice, Tensor]]]


def row_beliefs(pairs: Blocks, images: Tensor | None, sweeps: int) -> Tensor:
    """[r, 2, m]: how well each candidate fits the first and the second place of each row.

    `pairs` gives scores [b, m, m] block by block, anew each time. `images` [r, 2] int64 says
    which rows hold the same image: then each place also gets, of every other row that holds its
    image, the best score that row can reach. Each sweep hears rows one step further away.
    """
    said = _messages(pairs, None)
    if images is None:
        return said
    for _ in range(sweeps):
        said = _messages(pairs, _heard(said, images))
    return said + _heard(said, images) if sweeps else said


def _heard(said: Tensor, images: Tensor) -> Tensor:
    """[r, 2, m]: the sum of what all other rows say of the image in each place."""
    flat, image = said.flatten(0, 1), images.flatten()
    total = flat.new_zeros(int(image.max()) + 1, flat.shape[1]).index_add_(0, image, flat)
    return (total[image] - flat).view_as(said)


def _messages(pairs: Blocks, heard: Tensor | None) -> Tensor:
    """[r, 2, m]: the best score of each candidate in each place over those in the other place."""
    found = []
    for block, scores in pairs():
        first, second = scores, scores
        if heard is not None:
            first = scores + heard[block, 1].unsqueeze(1)
            second = scores + heard[block, 0].unsqueeze(2)
        best = torch.stack([first.amax(2), second.amax(1)], 1)
        found.append(best - best.amax(2, keepdim=True))
    return torch.cat(found)

"""Search of the public pool by cosine similarity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from harness.api import Attack, Budget, Channel, Config, Progress, Reconstruction, View
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024


class Nearest(Attack[Config]):
    """Answers each row with the public image of the largest cosine similarity.

    Both sides are centred on the public mean: a mixture's weights sum to one, so it has the
    same mean, which would otherwise make everything look alike.
    """

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One public image for each encoding of the first round, or for each row of features."""
        if view.has(Channel.ENCODINGS):
            queries = fit_images(view.encodings[0], view.shape).flatten(1)
            found = most_similar(queries, lambda: view.public.images.split(_BLOCK), progress)
            return Reconstruction(view.public.images[found], rows=torch.arange(len(found)))
        found = most_similar(view.features.flatten(1), lambda: _features(view), progress)
        return Reconstruction(view.public.images[found], targets=torch.arange(len(found)))


def _features(view: View) -> Iterator[Tensor]:
    with torch.no_grad():
        for block in view.public.images.split(_BLOCK):
            yield view.feature_encoder(block)


def most_similar(queries: Tensor, blocks: Blocks, progress: Progress) -> Tensor:
    """[n] index of the pool's row nearest to each of queries [n, d].

    `blocks` gives the pool anew each time it is called, as tensors [m, ...] of d numbers a row.
    """
    total, count = queries.new_zeros(queries.shape[1]), 0
    for block in blocks():
        total, count = total + block.flatten(1).sum(0), count + len(block)
    mean = total / count
    sought = normalize(queries - mean)
    best = queries.new_full((len(queries),), -torch.inf)
    found = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    start = 0
    for block in blocks():
        top, index = (sought @ normalize(block.flatten(1) - mean).T).max(1)
        found = torch.where(top > best, index + start, found)
        best = torch.maximum(best, top)
        start += len(block)
        progress(start, count)
    return found


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Blocks = Callable[[], Iterable[Tensor]]

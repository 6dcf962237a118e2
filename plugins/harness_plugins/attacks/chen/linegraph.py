"""Encodings of two images are edges of a graph of images; who shares an image tells the graph.

The graph of encodings, joined where they share an image, is the line graph of that graph. Its
edges fall into stars, one for each image, so that every encoding is in two (Krausz 1943); the
stars are the images (Whitney 1932: but for a triangle, there is one way).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_ALIKE = 0.8
"""Share of a star that each of its members is joined to, with some pairs judged wrongly."""
_ENOUGH = 6
"""Members of a star that others can be measured by."""


def line_graph_root(joined: Tensor, twins: Tensor, most: int) -> Tensor:
    """[m, q] bool: which encodings each of q <= `most` images is in, at most two for each.

    `joined` [m, m] bool says who shares an image, `twins` [m, m] bool who shares both: those are
    parallel edges, and in two stars together.
    """
    left = joined.clone().fill_diagonal_(False)
    spare = twins & left
    room = torch.full_like(left[0], 2, dtype=torch.int64)
    stars: list[Tensor] = []
    while len(stars) < most:
        pair = _best_pair(left & ~spare & (room > 0) & (room > 0).view(-1, 1))
        if pair is None:
            break
        star = _completed(_star(left, *pair, room > 0), joined, room > 0)
        within = star.view(-1, 1) & star
        left &= ~within | spare
        if not _known(star, stars):
            stars.append(star)
            room -= star.long()
    stars += _ends(room, len(joined), most - len(stars))
    return torch.stack(stars, 1) if stars else joined.new_zeros(len(joined), 0)


def _best_pair(left: Tensor) -> tuple[int, int] | None:
    """Of the encoding with most neighbours, the one that has most of them in common with it."""
    degrees = left.sum(1)
    first = int(degrees.argmax())
    if not int(degrees[first]):
        return None
    common = (left[:, left[first]]).sum(1)
    return first, int(torch.where(left[first], common, -1).argmax())


def _star(left: Tensor, first: int, second: int, free: Tensor) -> Tensor:
    """[m] bool: the two, and those of their common neighbours that are joined to each other."""
    common = (left[first] & left[second] & free).nonzero().squeeze(1)
    among = left[common][:, common].float()
    kept = torch.ones(len(common), dtype=torch.bool, device=left.device)
    while bool(kept.any()):
        degrees = torch.where(kept, among[:, kept].sum(1), torch.inf)
        worst = int(degrees.argmin())
        if float(degrees[worst]) >= _ALIKE * (int(kept.sum()) - 1):
            break
        kept[worst] = False
    star = torch.zeros_like(free)
    star[[first, second]] = True
    star[common[kept]] = True
    return star


def _completed(star: Tensor, joined: Tensor, free: Tensor) -> Tensor:
    """With encodings that are joined to most of it, though not to both it began with.

    A small star is left as it is: an encoding of two of its other ends is joined to two of it.
    """
    if int(star.sum()) < _ENOUGH:
        return star
    return star | (free & (joined[:, star].float().mean(1) >= _ALIKE))


def _known(star: Tensor, stars: list[Tensor]) -> bool:
    """Whether most of a star is in an earlier one."""
    return any(int((star & other).sum()) > 0.5 * int(star.sum()) + 1 for other in stars)


def _ends(room: Tensor, m: int, most: int) -> list[Tensor]:
    """Images that one encoding alone holds: a star of its own for each place left in a row."""
    lonely = (room == 1).nonzero().squeeze(1)[: max(0, most)]
    return [torch.arange(m, device=room.device) == row for row in lonely]

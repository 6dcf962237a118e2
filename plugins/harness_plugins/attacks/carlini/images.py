"""Images of clusters: quick ones, to read memberships off, and those of known masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_plugins.clusters.published import unmasked
from harness_plugins.clusters.reading import reread, unexplained
from harness_plugins.clusters.solving import solved
from harness_plugins.signs.demasker import Demasker

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, View
    from harness_plugins.clusters.membership import Membership
    from harness_plugins.clusters.published import Published

_TURNS = 12  # of signs and images
_SURE = 12.0


def read_off(
    view: View,
    published: Published,
    found: Membership,
    classes: Tensor,
    times: int,
    progress: Progress,
    *,
    members: bool = True,
) -> tuple[Membership, float]:
    """Memberships and weights read anew so many times; the share of memberships that changed.

    What explains the encodings no better than before, once solved again, is not taken. Without
    `members`, which are known then, weights alone are read.
    """
    if not times:
        return found, 0.0
    seen, before = published.seen.flatten(1).abs(), found.clusters
    odds = Demasker.of(view).odds(published.rows).flatten(1)
    turns = _TURNS if published.hidden else 1
    images = solved(seen, odds, found, turns)
    left = unexplained(published, images, found)
    for turn in range(times):
        tried = reread(published, images, classes, found, members=members)
        theirs = solved(seen, odds, tried, turns)
        better = unexplained(published, theirs, tried)
        progress(turn + 1, times, f"{better:.1%} of the encodings unexplained")
        if better >= left:
            break
        found, images, left = tried, theirs, better
    return found, float((found.clusters.sort(1).values != before.sort(1).values).float().mean())


def mixtures_solved(view: View, published: Published, found: Membership) -> Tensor:
    """[n, *shape] by least squares from mixtures whose masks are known."""
    rows = unmasked(view, published).rows
    true = rows.flatten(1)
    images = solved(true.abs(), _SURE * true.sign(), found, 1)
    return images.view(-1, *rows.shape[1:])

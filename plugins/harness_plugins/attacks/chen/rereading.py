"""Memberships and weights once there are images: what explains each encoding best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_plugins.attacks.chen.memberships import open_weights
from harness_plugins.attacks.chen.regression import Regression
from harness_plugins.clusters.reading import reread

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.clusters.membership import Membership
    from harness_plugins.clusters.published import Published

_LEAST = 0.02  # relative squared error below which encodings are trusted alike


def read_again(
    published: Published, images: Tensor, classes: Tensor, found: Membership, *, members: bool
) -> Membership:
    """Members by trial of all images [n, d] of their class; open weights by least squares.

    Without `members`, which are known then, weights alone.
    """
    seen, hidden = published.seen.flatten(1), published.hidden
    better = reread(published, images, classes, found, members=members)
    rows, labels = seen, published.labels
    if hidden:
        rows = seen * better.mixture.apply(images).sign()
    return open_weights(better, rows @ images.T, images @ images.T, labels)


def trust(seen: Tensor, images: Tensor, found: Membership, hidden: bool) -> Tensor:
    """[m, 1] less for encodings that the images do not explain."""
    mixed = found.mixture.apply(images)
    left = ((mixed.abs_() if hidden else mixed) - seen).square_().mean(1, keepdim=True)
    return 1 / (left / seen.square().mean(1, keepdim=True).clamp(min=1e-12) + _LEAST)


def solve_again(
    seen: Tensor, images: Tensor, found: Membership, hidden: bool, turns: int
) -> Tensor:
    """Images [n, d], from these on, of what was read again."""
    regression = Regression.of(found, trust(seen, images, found, hidden))
    return regression.improved(seen, images, turns) if hidden else regression.signed(seen)

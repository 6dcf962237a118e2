"""What soft labels say of the private images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PRESENT = 1e-5
"""A share of a label below this is rounding."""


def images_of_classes(labels: Tensor, n: int, slots: int) -> Tensor:
    """[classes] int64: how many of `n` images are of each class; they sum to `n`.

    Each row holds `slots` images. Where labels tell how many of each class that is, and every
    image is in as many rows, the count is exact. Else shares are added up: all rounds together
    give every image the same weight, but for chance, which averages out. Largest remainders
    decide what is left over.
    """
    mass = _counted(labels, slots)
    exact = mass * (n / mass.sum())
    whole = (exact + 1e-6).floor().long()
    left = n - int(whole.sum())
    if left > 0:
        whole[(exact - whole).topk(left).indices] += 1
    return whole


def _counted(labels: Tensor, slots: int) -> Tensor:
    """[classes] float64: images of each class in all rows, or the sum of their shares."""
    named = labels > PRESENT
    classes = named.sum(1, keepdim=True)
    if not bool(((classes == slots) | (classes == 1)).all()):
        return labels.sum(0).double()
    each = (classes == 1) * (slots - 1) + 1
    return (named * each).sum(0).double()

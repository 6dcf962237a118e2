"""What soft labels say of the private images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PRESENT = 1e-5
"""A share of a label below this is rounding."""


def images_of_classes(labels: Tensor, n: int) -> Tensor:
    """[classes] int64: how many of `n` images are of each class; they sum to `n`.

    All rounds together give every image the same weight, but for chance, which averages out.
    Largest remainders decide what is left over.
    """
    exact = labels.sum(0).double() * (n / labels.sum().double())
    whole = exact.floor().long()
    left = n - int(whole.sum())
    if left > 0:
        whole[(exact - whole).topk(left).indices] += 1
    return whole

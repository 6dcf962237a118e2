"""What both penalties look at: representations of one length, and the classes of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

# A shorter row keeps its direction but not unit length: the gradient through it stays finite.
_SHORTEST = 1e-6


def rows_of(hidden: Tensor, *, unit: bool) -> Tensor:
    """h(x) [b, ...] as rows [b, d], of norm 1 where `unit`; a row of zeros stays zeros.

    At least float32: small distances are lost in anything shorter.
    """
    rows = hidden.flatten(1).to(torch.promote_types(hidden.dtype, torch.float32))
    if not unit:
        return rows
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    scaled: Tensor = rows / norms.clamp(min=_SHORTEST)
    return scaled


def classes_of(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The class of each row [b], numbered among the classes present, and their sizes [C].

    `labels` [b, classes] may be soft: a row belongs to its heaviest class.
    """
    heaviest = labels.argmax(1)
    _, numbers, sizes = torch.unique(heaviest, return_inverse=True, return_counts=True)
    return numbers, sizes

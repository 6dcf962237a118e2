"""Which class the primary image of a row is of, by its soft label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.classes import slot_shares

if TYPE_CHECKING:
    from torch import Tensor


def own_class(labels: Tensor, weights: Tensor | None) -> Tensor:
    """[n, classes] probabilities, of soft labels [n, classes] and weights [n, k] if granted.

    Without weights a class is as likely as its entry in the label is large.
    """
    if weights is not None:
        return slot_shares(weights, labels, 0)
    total = labels.sum(1, keepdim=True)
    return labels / total.clamp(min=torch.finfo(labels.dtype).tiny)

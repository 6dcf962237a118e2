"""Labels of a batch from the gradient of the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch.nn.functional import one_hot

from harness.api import CellFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


def last_layer(model: nn.Module, classes: int) -> tuple[str, str | None]:
    """Names of the weight [classes, d] that makes the logits, and of its bias if it has one."""
    weights = [n for n, p in model.named_parameters() if p.ndim == 2 and len(p) == classes]
    if not weights:
        raise CellFailed(
            f"labels cannot be reconstructed: no layer of the model has a weight of {classes} rows"
        )
    bias = weights[-1].removesuffix("weight") + "bias"
    return weights[-1], bias if bias in dict(model.named_parameters()) else None


def distinct(gradients: Mapping[str, Tensor], weight: str, size: int) -> Tensor:
    """[batches, b, classes] one-hot: the b rows of the last gradient whose minima are least.

    Only the rows of labels in the batch are pushed below zero (Zhao et al. 2020; Yin et al. 2021).
    """
    rows = gradients[weight]
    classes = rows.shape[1]
    if size > classes:
        raise CellFailed(
            f"a batch of {size} holds more images than there are classes ({classes}), and the "
            "rule of labels=distinct finds each class once at the most; use labels=counted"
        )
    chosen = rows.amin(2).topk(size, dim=1, largest=False).indices
    return one_hot(chosen, classes).to(rows.dtype)


def counted(gradients: Mapping[str, Tensor], bias: str | None, guess: Tensor, size: int) -> Tensor:
    """[batches, b, classes] one-hot, each class as often as the bias's gradient says.

    That is mean(p) − n_c/b; `guess` [classes] are mean probabilities of public images, in place
    of those of the batch.
    """
    if bias is None:
        raise CellFailed(
            "labels=counted reads the gradient of the last layer's bias, and this model has none; "
            "use labels=distinct or labels=joint"
        )
    share = (guess - gradients[bias]).clamp(min=0)
    share = share / share.sum(1, keepdim=True).clamp(min=1e-12)
    counts = _whole(share * size, size)
    classes = torch.arange(share.shape[1], device=share.device)
    each = torch.stack([classes.repeat_interleave(count) for count in counts])
    return one_hot(each, share.shape[1]).to(share.dtype)


def _whole(shares: Tensor, size: int) -> Tensor:
    """[batches, classes] whole numbers that add up to `size`, by largest remainder."""
    counts = shares.floor()
    left = (size - counts.sum(1)).long()
    ranks = (shares - counts).argsort(1, descending=True).argsort(1)
    whole: Tensor = (counts + (ranks < left.unsqueeze(1))).long()
    return whole


def mean_probabilities(model: nn.Module, images: Tensor | None, classes: int) -> Tensor:
    """[classes] that the model gives public images; evenly spread without any."""
    if images is None:
        return torch.full((classes,), 1 / classes, device=next(model.parameters()).device)
    with torch.no_grad():
        outputs = [model(part).softmax(1) for part in images.split(256)]
    return torch.cat(outputs).mean(0)


Rule = Literal["distinct", "counted"]


def reconstruct(
    rule: Rule,
    gradients: Mapping[str, Tensor],
    model: nn.Module,
    public: Tensor | None,
    classes: int,
    size: int,
) -> Tensor:
    """[batches, b, classes] one-hot labels of each released gradient."""
    weight, bias = last_layer(model, classes)
    if rule == "distinct":
        return distinct(gradients, weight, size)
    guess = mean_probabilities(model, public, classes)
    return counted(gradients, bias, guess, size)

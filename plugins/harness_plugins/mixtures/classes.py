"""Which class each image of a mixture is of, as its soft label tells."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture

_WIDTH = 1e-4  # of a share that weights explain: float32, and a defense's own arithmetic
_DOUBT = 1e-9
_MOST = 8  # images of a mixture of which all subsets are tried


def class_shares(mixture: Mixture, labels: Tensor) -> Tensor:
    """[n, classes]: how likely each image is of each class, from soft labels [rows, classes].

    A class's share of a label is the sum of the weights of its images: for each image, every
    set of companions that may share its class is tried.
    """
    likely = labels.new_zeros(mixture.n, labels.shape[1])
    for slot, source in enumerate(mixture.sources.T):
        told = slot_shares(mixture.weights, labels, slot)
        known = mixture.weights[:, slot] > 0
        likely.index_add_(0, source[known], (told[known] + _DOUBT).log())
    return likely.softmax(1)


def slot_shares(weights: Tensor, labels: Tensor, slot: int) -> Tensor:
    """[rows, classes]: the class of the image at `slot` of weights [rows, k]."""
    k, classes = weights.shape[1], labels.shape[1]
    others = [j for j in range(k) if j != slot]
    scores = []
    for size in range(k if k <= _MOST else 1):
        for companions in combinations(others, size):
            share = weights[:, [slot, *companions]].sum(1, keepdim=True)
            misfit = (labels - share) / _WIDTH
            alike = size * torch.tensor(1 / classes).log().to(labels)
            scores.append(alike - misfit.square().clamp(max=1e6) / 2)
    best = torch.stack(scores).logsumexp(0)
    return best.masked_fill(labels <= 0, -torch.inf).softmax(1).nan_to_num(1 / classes)

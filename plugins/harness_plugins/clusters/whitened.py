"""Likeness without training: the cosine of what masks leave, whitened on public encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from harness_plugins.signs.exercise import encode

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.clusters.published import Published

_LEARNED_FROM = 4000  # public encodings
_COMPONENTS = 512
_RIDGE = 0.1  # of the mean variance of the components


def whitened_places(view: View, published: Published) -> Tensor:
    """[m, q] unit vectors: the leading components of public encodings, at even variance."""
    samples = view.public[:_LEARNED_FROM]
    encodings = encode(view, samples, view.rng.stream(use="whitening")).encodings
    public = (encodings.abs() if published.hidden else encodings).flatten(1)
    mean = public.mean(0)
    count = min(_COMPONENTS, *public.shape)
    _, values, basis = torch.svd_lowrank(public - mean, q=count)
    variances = values.square() / len(public)
    scale = (variances + _RIDGE * variances.mean()).rsqrt()
    return normalize((published.seen.flatten(1) - mean) @ basis * scale)

"""How much of the images' variance lies between classes, told by the release itself."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_SHARES = torch.logspace(-6, -0.1, 60)
"""Shares of a component's variance that may lie between classes."""
_FIRST, _DOUBT = 0.1, 1.5
"""Of the leading component, before the release is seen; deviation of its logarithm."""
_FALL, _STEP = 0.7, 0.7
"""How much the logarithm falls from one octave of components to the next, give or take."""
_LEVEL = 4
"""Leading components among which it need not fall."""


def between_classes(means: Tensor, errors: Tensor, variances: Tensor) -> Tensor:
    """[q] shares of `variances` [q] that lie between classes, at most .8.

    `means` [r, q] are uncorrelated combinations of class means about the mean of all, each
    normal with variance share·variance + error, `errors` [r, q]. One share for an octave of
    components (1, 2, 4, ...), and the likeliest course of them by dynamic programming: shares
    fall slowly, and where noise hides them they follow those that are told.
    """
    shares = _SHARES.to(means)
    grid = shares.log()
    spans = _octaves(len(variances))
    odds = [_log_odds(means, errors, variances, span, shares) for span in spans]
    score = odds[0] - (grid - torch.tensor(_FIRST).log()).div(_DOUBT).square() / 2
    back = []
    for span, told in zip(spans[1:], odds[1:], strict=True):
        fall = _FALL if span.start >= _LEVEL else 0.0
        steps = (grid.view(-1, 1) - (grid - fall)).div(_STEP).square() / -2
        best, source = (score + steps).max(1)
        back.append(source)
        score = best + told
    course = [int(score.argmax())]
    for source in reversed(back):
        course.append(int(source[course[-1]]))
    found = torch.empty_like(variances)
    for span, at in zip(spans, reversed(course), strict=True):
        found[span] = shares[at]
    return found


def _octaves(count: int) -> list[slice]:
    ends = [0, *(1 << i for i in range(count.bit_length()) if 1 << i < count), count]
    return [slice(a, b) for a, b in pairwise(ends)]


def _log_odds(
    means: Tensor, errors: Tensor, variances: Tensor, span: slice, shares: Tensor
) -> Tensor:
    """[shares] log-likelihood of each share in a span of components."""
    seen = (means[:, span].square() / variances[span]).reshape(1, -1)
    wide = shares.view(-1, 1) + (errors[:, span] / variances[span]).reshape(1, -1)
    return -(wide.log() + seen / wide).sum(1) / 2

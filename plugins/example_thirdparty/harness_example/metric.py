"""The metric at work."""

from __future__ import annotations

from torch import Tensor

from harness.api import Metric


class MaxError(Metric):
    """How wrong the worst pixel is."""

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] in [0,1]."""
        return (images - truth).abs().flatten(1).amax(1).double()

"""Reading a mixture as an image: how much of it is the image that it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_FEW = 5000  # images that are enough for a mean


@dataclass(frozen=True)
class Reading:
    """x = mean + share (m - centre), for the mean image and the centre of what is read.

    `share` is the regression of images on what is read, by one number: for exact mixtures
    E[w]/E[sum w^2] of the weights, if images are alike in spread; less where they are guessed.
    """

    mean: Tensor
    centre: Tensor
    share: float

    @classmethod
    def learn(cls, read: Tensor, truth: Tensor, public: Tensor) -> Reading:
        """From what was read [n, *shape] of known images [n, *shape]."""
        centre = read.mean(0)
        about, images = read - centre, truth - truth.mean(0)
        share = float((about * images).sum() / about.square().sum().clamp(min=1e-12))
        return cls(public[:_FEW].mean(0), centre, max(0.0, share))

    def of(self, read: Tensor) -> Tensor:
        """Images [n, *shape]."""
        return self.mean + self.share * (read - self.centre)

"""Reading a mixture as an image: how much of it is the image that it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


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
    def learn(cls, read: Tensor, truth: Tensor) -> Reading:
        """From what was read [n, *shape] of known images [n, *shape].

        Mean and centre are of the same images: where all is read, all comes back.
        """
        mean, centre = truth.mean(0), read.mean(0)
        about, images = read - centre, truth - mean
        share = float((about * images).sum() / about.square().sum().clamp(min=1e-12))
        return cls(mean, centre, max(0.0, share))

    def of(self, read: Tensor) -> Tensor:
        """Images [n, *shape]."""
        return self.mean + self.share * (read - self.centre)

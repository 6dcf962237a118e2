"""The law of a defense: how it mixes, and what noise it adds. Stated once, by the defense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Noise = Literal["none", "gaussian", "sphere", "laplace"]
"""Of a row: none; independent normal or Laplace values; uniform on a sphere."""
Covered = Literal["row", "others"]


@dataclass(frozen=True)
class Law:
    """Row i of a round is Σ_j weights[i,j] · images[sources[i,j]] plus noise of its own.

    Weights, sources and noise are drawn without a look at the images, and the noise of every row,
    in every round, is independent of all else. `Secrets` says what weights and sources are.
    """

    noise: Noise
    deviation: float = 0.0
    """Of one value of the noise before it is weighed: of the sphere of radius r, r / √values."""
    covers: Covered = "row"
    """The noise lies on the whole row, or on what is not the row's own image: with w the weight
    of that, its deviation is then (1-w) `deviation`."""
    signs: bool = False
    """Whether every value of a row is then multiplied by a random sign."""
    altered: str = ""
    """What is mixed where it is not the images as they are: crops of them, say."""
    exposure: float | None = None
    """The most that a round may tell of one image: the largest Σ, over the rows that contain it,
    of (its weight in the row / the row's deviation)², whatever weights and order are drawn. None
    where nobody states it."""
    calibrated: tuple[str, ...] = ()
    """Options whose values were computed from the private images."""

    def deviations(self, weights: Tensor) -> Tensor:
        """[n] deviation of a value of each row's noise, of rows with weights [n, k]."""
        if self.covers == "others":
            return (1 - weights[:, 0].double()) * self.deviation
        return weights[:, 0].double() * 0 + self.deviation

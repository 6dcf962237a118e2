"""The weighted sum of two images and noise, block by block, on every thread torch may use."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness_plugins.defenses.singmix.rows import at_resolution, flat_rows
from harness_plugins.random_rows import RandomRows, spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import SamplesOnDemand, Stream

# Numbers whose noise has one key: with its noise and its two images 3 MB of scratch a thread.
_BLOCK = 1 << 18
# Numbers worked on in float64 at a time: few enough for a core's own cache.
_SLICE = 3 << 13


@dataclass(frozen=True)
class Covering:
    """w x_i + (1 - w)(x_pi(i) + e), for `partners` pi [n] and `weights` (w, 1 - w) [n, 2].

    The noise e has the norm `radius`, exactly or, `gaussian`, in expectation. It is scaled in
    float64 and all of it rounded once, to the encoding: coarser rounding would hide the norm.
    """

    partners: Tensor
    weights: Tensor
    radius: float
    gaussian: bool
    resolution: int | None

    def noise(self, shape: tuple[int, ...], rng: Stream) -> RandomRows:
        """What `apply` takes its noise from, for a round of encodings of this shape."""
        values = math.prod(shape)
        block = max(1, min(len(self.partners), _BLOCK // max(1, values)))
        return RandomRows(block, lambda _: rng.normal_later(block, values))

    def apply(self, private: SamplesOnDemand, index: Tensor, noise: RandomRows) -> Tensor:
        """[b, *shape] float32 of the rows `index` [b]; scratch stays small beside the result.

        The key of each block's noise is drawn before any block is worked on, and a row is
        summed by one thread: the bits do not depend on how many threads there are.
        """
        few = at_resolution(private[:1].images, self.resolution)
        covered = torch.empty(len(index), *few.shape[1:])
        rows = covered.flatten(1)

        def fill(part: tuple[slice, Callable[[], Tensor]]) -> None:
            block, make = part
            unit = make() if self.radius > 0 else None
            self._fill(rows[block].numpy(), private, index[block], unit)

        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            list(threads.map(fill, noise.take(len(index))))
        return covered.to(few.device)

    def _fill(
        self,
        covered: NDArray[np.float32],
        private: SamplesOnDemand,
        index: Tensor,
        noise: Tensor | None,
    ) -> None:
        """Write the rows of one block, in slices that stay in the cache."""
        own = flat_rows(private[index].images, self.resolution).numpy()
        partner = flat_rows(private[self.partners[index]].images, self.resolution).numpy()
        first, second = self.weights[index].double().numpy().T[:, :, None]
        unit = None if noise is None else noise.numpy()
        for rows in spans(len(covered), covered.shape[1], _SLICE):
            total = (
                np.zeros_like(own[rows], np.float64) if unit is None else self._scaled(unit[rows])
            )
            total += partner[rows]
            total *= second[rows]
            total += own[rows] * first[rows]
            covered[rows] = total

    def _scaled(self, unit: NDArray[np.float32]) -> NDArray[np.float64]:
        """Standard normal rows [b, d] brought to the radius, in float64."""
        noise = unit.astype(np.float64)
        if self.gaussian:
            noise *= self.radius / math.sqrt(noise.shape[1])
        else:
            norms = np.sqrt(np.einsum("ij,ij->i", noise, noise))
            noise *= (self.radius / norms)[:, None]
        return noise

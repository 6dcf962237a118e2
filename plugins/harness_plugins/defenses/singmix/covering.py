"""The weighted sum of two images and noise, block by block, on every thread torch may use."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness_plugins.defenses.singmix.rows import at_resolution, flat_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import Stream

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

    def apply(self, images: Tensor, rng: Stream) -> Tensor:
        """[n, *shape] float32 of images [n, *shape]; scratch stays small beside the result.

        The key of each block's noise is drawn before any block is worked on, and a row is
        summed by one thread: the bits do not depend on how many threads there are.
        """
        inputs = images.cpu()
        covered = torch.empty(len(inputs), *at_resolution(inputs[:1], self.resolution).shape[1:])
        rows = covered.flatten(1)
        blocks = list(_slices(len(rows), rows.shape[1], _BLOCK))
        noises = [self._noise(rows[block], rng) for block in blocks]

        def fill(block: slice, noise: Callable[[], Tensor] | None) -> None:
            self._fill(rows[block].numpy(), inputs, block, noise)

        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            list(threads.map(fill, blocks, noises))
        return covered.to(images.device)

    def _noise(self, rows: Tensor, rng: Stream) -> Callable[[], Tensor] | None:
        return rng.normal_later(*rows.shape) if self.radius > 0 else None

    def _fill(
        self,
        covered: NDArray[np.float32],
        images: Tensor,
        block: slice,
        noise: Callable[[], Tensor] | None,
    ) -> None:
        """Write the rows of one block, in slices that stay in the cache."""
        own = flat_rows(images[block], self.resolution).numpy()
        partner = flat_rows(images[self.partners[block]], self.resolution).numpy()
        first, second = self.weights[block].double().numpy().T[:, :, None]
        unit = None if noise is None else noise().numpy()
        for rows in _slices(len(covered), covered.shape[1], _SLICE):
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


def _slices(n: int, d: int, numbers: int) -> Iterator[slice]:
    """Rows 0..n-1 of d numbers each, at most `numbers` of them together, but a row at least."""
    step = max(1, numbers // d)
    return (slice(start, min(n, start + step)) for start in range(0, n, step))

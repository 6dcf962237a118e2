"""From the linear answer, in turns: what the rows say of each image, denoised."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.prior.messages import Rows, belief_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from harness.api import Progress
    from harness_plugins.attacks.prior.denoiser import PublicDenoiser
    from harness_plugins.attacks.prior.messages import Belief
    from harness_plugins.mixtures.released import Released

_PROBES = 16


class Turns:
    """Of one release. Rows may be in coordinates that are not the images' own values.

    Noise that is white in those is taken to be white in the images, as strong as it is there in
    the mean over all values.
    """

    def __init__(self, released: Released, denoiser: PublicDenoiser, progress: Progress) -> None:
        self.released, self.denoiser = released, denoiser
        self.progress = progress

    @cached_property
    def _solution(self) -> Tensor:
        released = self.released
        return released.model.estimate(released.rows, report=self.progress)

    @cached_property
    def linear(self) -> Tensor:
        """[n, *shape]: the answer of `lmmse`."""
        return self.released.subspace.recover(self._solution)

    @cached_property
    def _rows(self) -> Rows:
        return Rows.of(self.released.model, self.released.rows)

    @cached_property
    def _first(self) -> Belief:
        error = self.released.model.expected_error() / self._solution.shape[1]
        return self._rows.consistent(self._solution, error)

    @cached_property
    def precision(self) -> Tensor:
        """[n] of what the rows say of each image, before any turn."""
        return self._rows.precision(self._first.variances)

    @cached_property
    def _shares(self) -> Tensor:
        """[n, classes]; zeros where labels say nothing."""
        shares = self.released.model.shares
        return shares if self.released.labels is not None else torch.zeros_like(shares)

    @cached_property
    def _stretch(self) -> tuple[Tensor | float, Tensor | float]:
        """Power of white noise of power one, from coordinates to images and back."""
        subspace, like = self.released.subspace, self._solution
        if subspace.trivial:
            return 1.0, 1.0
        probes = self.released.view.rng.stream(use="probes").normal(_PROBES, like.shape[1])
        images = subspace.recover(probes.to(like))
        back = subspace.embed(probes.to(like).view_as(images))
        return images.square().mean(), back.square().mean()

    def __iter__(self) -> Iterator[Tensor]:
        """[n, *shape] after each turn, without end."""
        subspace, belief = self.released.subspace, self._first
        there, back = self._stretch
        while True:
            noisy, precision = self._rows.extrinsic(belief)
            seen = subspace.recover(noisy).flatten(1)
            found, errors = self.denoiser.denoise(seen, there / precision, self._shares)
            images = found.view_as(self.linear)
            yield images
            belief = belief_of(subspace.embed(images), errors * back, noisy, precision)

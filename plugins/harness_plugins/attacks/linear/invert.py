"""The linear attack on mixtures, and its counterpart on features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.linear import LinearConfig
from harness_plugins.attacks.linear.descent import Objective, descend
from harness_plugins.features.ridge import regress
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor


class Linear(Attack[LinearConfig]):
    """Least squares, because the release is a known linear map of the private images."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """All private images, or all whose features were released, by name."""
        if view.has(Channel.ENCODINGS):
            images = self._invert(view, progress)
            return Reconstruction(images=images, targets=torch.arange(view.n_private))
        images, diagnostics = regress(view, self.config.ridge_images, progress)
        names = torch.arange(len(images))
        return Reconstruction(images=images, targets=names, diagnostics=diagnostics)

    def _invert(self, view: View, progress: Progress) -> Tensor:
        """[n_private, *view.shape]: channels do not meet in the objective, so one at a time."""
        fit_images(view.encodings[0, :1], view.shape)  # raises where encodings are no images
        mixture = Mixture.of(view.weights, view.sources, view.n_private)
        images = view.encodings.new_empty(view.n_private, *view.shape)
        for channel in range(view.shape[0]):
            found = self._invert_channel(view, mixture, channel, progress)
            images[:, channel : channel + 1] = fit_images(found, (1, *view.shape[1:]))
        return images

    def _invert_channel(
        self, view: View, mixture: Mixture, channel: int, progress: Progress
    ) -> Tensor:
        """[n_private, 1, h', w'] at the encodings' own resolution."""
        observed = view.encodings[:, :, channel]
        height, width = observed.shape[-2:]
        objective = Objective(
            mixture,
            observed.reshape(-1, height * width),
            (height, width),
            self.config.lambda_tv,
            self.config.lambda_2,
        )
        steps = self.config.steps

        def stepped(step: int) -> None:
            progress(channel * steps + step, view.shape[0] * steps)

        bounds = _range(view, channel)
        found = descend(objective, bounds, steps, self.config.lr, stepped)
        return found.view(-1, 1, height, width)


def _range(view: View, channel: int) -> tuple[float, float]:
    """What [0,1] becomes when the channel is standardised."""
    mean, std = view.scale.mean[channel], view.scale.std[channel]
    return -mean / std, (1 - mean) / std

"""The U-Net attack: which of its forms, and what its answers are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.unet import UNetConfig, conditioned, features, paper
from harness_plugins.attacks.unet.rows import names_targets

if TYPE_CHECKING:
    from torch import Tensor


class UNetAttack(Attack[UNetConfig]):
    """Learns to undo the defense on public images, then undoes the release."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """A trained network; nothing for features, whose encoder is part of the release."""
        if not view.has(Channel.ENCODINGS):
            return {}
        if self.config.variant == "paper":
            return paper.learn(view, self.config, progress)
        return conditioned.learn(view, self.config, budget, progress)

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Targets by name where sources are granted or features released, else rows of round 0."""
        if not view.has(Channel.ENCODINGS):
            images = self._decode(view, progress)
            return Reconstruction(images=images, targets=torch.arange(len(images)))
        images = self._estimate(view, prepared, budget)
        names = torch.arange(len(images))
        if names_targets(view):
            return Reconstruction(images=images, targets=names)
        return Reconstruction(images=images, rows=names)

    def _decode(self, view: View, progress: Progress) -> Tensor:
        config = self.config
        lessons = features.Lessons(
            config.base, config.epochs, config.batch, config.lr, config.images
        )
        learned = features.School(view, lessons).learn(progress)
        return features.decode(view, learned, config.base)

    def _estimate(self, view: View, prepared: Mapping[str, Tensor], budget: Budget) -> Tensor:
        if self.config.variant == "paper":
            return paper.estimate(view, self.config, prepared)
        return conditioned.estimate(view, self.config, budget, prepared)

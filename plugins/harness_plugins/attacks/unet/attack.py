"""The U-Net attack: which of its forms, and what its answers are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.unet import UNetConfig, conditioned, paper
from harness_plugins.attacks.unet.rows import names_targets
from harness_plugins.features.decoder import Lessons, School, answer
from harness_plugins.features.encoder import require_own_features

if TYPE_CHECKING:
    from torch import Tensor


class UNetAttack(Attack[UNetConfig]):
    """Learns to undo the defense on public images, then undoes the release."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """A trained network: of features, a decoder, as their encoder is known before them."""
        if not view.has(Channel.ENCODINGS):
            return self._learn_decoder(view, progress)
        if self.config.variant == "paper":
            return paper.learn(view, self.config, progress)
        return conditioned.learn(view, self.config, budget, progress)

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Targets by name where sources are granted or features released, else rows of round 0."""
        if not view.has(Channel.ENCODINGS):
            require_own_features(view)
            return answer(view, prepared, self.config.base)
        images = self._estimate(view, prepared, budget)
        names = torch.arange(len(images))
        if names_targets(view):
            return Reconstruction(images=images, targets=names)
        return Reconstruction(images=images, rows=names)

    def _learn_decoder(self, view: View, progress: Progress) -> Mapping[str, Tensor]:
        config = self.config
        lessons = Lessons(config.base, config.epochs, config.batch, config.lr, config.images)
        return School(view, lessons).learn(progress)

    def _estimate(self, view: View, prepared: Mapping[str, Tensor], budget: Budget) -> Tensor:
        if self.config.variant == "paper":
            return paper.estimate(view, self.config, prepared)
        return conditioned.estimate(view, self.config, budget, prepared)

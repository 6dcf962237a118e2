"""The linear minimum mean squared error attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.lmmse import LmmseConfig
from harness_plugins.mixtures.posterior import predicted_snr
from harness_plugins.mixtures.released import Released

if TYPE_CHECKING:
    from torch import Tensor


class Lmmse(Attack[LmmseConfig]):
    """Solves the whole release for all of its images at once."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Every private image by name; `predicted_snr_db` says how near it expects to come."""
        released = Released.of(view, self.config.mean, self.config.subspace, budget)
        targets = torch.arange(view.n_private)
        if released.law.hidden:
            images = released.centres()
            return Reconstruction(images, targets, diagnostics={"linear_trace": 0.0})
        model = released.model
        found = model.estimate(released.rows, report=progress)
        error = model.expected_error(released.recovered)
        images = released.subspace.recover(found)
        diagnostics = {
            "predicted_snr_db": predicted_snr(images, error),
            "predicted_error": float(error.mean()) / images[0].numel(),
            "kept_variance": float(released.prior.kept),
            **model.effort,
        }
        return Reconstruction(view.scale.clamp(images), targets, diagnostics=diagnostics)

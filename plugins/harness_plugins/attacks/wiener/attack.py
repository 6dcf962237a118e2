"""Row-wise Wiener filtering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.wiener import WienerConfig
from harness_plugins.mixtures.law import learn_law
from harness_plugins.mixtures.posterior import predicted_snr
from harness_plugins.mixtures.released import fitting_prior
from harness_plugins.mixtures.rowwise import filtered
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor


class Wiener(Attack[WienerConfig]):
    """Filters each encoding of the first round."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each row of round 0."""
        config = self.config
        subspace = Subspace.between(view.shape, view.encodings[0], config.subspace)
        prior = fitting_prior(view, subspace, config.mean, budget)
        law = learn_law(view, subspace)
        progress(1, 2, "measured the noise")
        labels = view.labels[0] if view.has(Channel.LABELS) else None
        rows = subspace.project(view.encodings[0])
        found, error = filtered(prior, law, rows, view.weights[0], labels)
        images = subspace.recover(found)
        diagnostics = {"kept_variance": float(prior.kept)}
        if subspace.trivial:
            diagnostics["predicted_snr_db"] = predicted_snr(images, error)
        progress(2, 2)
        named = torch.arange(len(images))
        return Reconstruction(view.scale.clamp(images), rows=named, diagnostics=diagnostics)

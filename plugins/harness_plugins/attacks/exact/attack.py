"""Plain inversion of the mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.exact import ExactConfig
from harness_plugins.attacks.exact.inversion import invert
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

_FARTHEST = 1e6
"""Values beyond this are no image in any space; kept so that no infinity leaves."""


class Exact(Attack[ExactConfig]):
    """Inverts W, whatever noise there is."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Every private image by name."""
        subspace = Subspace.between(view.shape, view.encodings[0], self.config.subspace)
        rows = subspace.project(view.encodings.flatten(0, 1))
        mixture = Mixture.of(view.weights, view.sources, view.n_private)
        found = invert(mixture, rows, progress)
        images = subspace.recover(found.values.nan_to_num().clamp(-_FARTHEST, _FARTHEST))
        return Reconstruction(
            images=view.scale.clamp(images),
            targets=torch.arange(view.n_private),
            diagnostics=found.diagnostics,
        )

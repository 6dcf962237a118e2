"""Encodings read as images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Config, Progress, Reconstruction, View
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor


class Identity(Attack[Config]):
    """Brings a release to the energy that standardised images have by definition: 1 a pixel.

    One factor serves all rows, so that bright images stay brighter than dark ones and an
    undefended release comes back as it was, up to that factor.
    """

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each encoding of the first round."""
        images = fit_images(view.encodings[0], view.shape)
        energy = images.square().mean().sqrt()
        scaled = images / energy.clamp(min=torch.finfo(images.dtype).tiny)
        return Reconstruction(images=scaled, rows=torch.arange(len(images)))

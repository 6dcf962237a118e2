"""`identity`: the encoding itself is taken for the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.api import (
    Attack,
    AttackSpec,
    Budget,
    Channel,
    Config,
    Control,
    Progress,
    Reconstruction,
    View,
    hookimpl,
)

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
        import torch

        from harness_plugins.resizing import fit_images

        images = fit_images(view.encodings[0], view.shape)
        energy = images.square().mean().sqrt()
        scaled = images / energy.clamp(min=torch.finfo(images.dtype).tiny)
        return Reconstruction(images=scaled, rows=torch.arange(len(images)))


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The cheapest attack that looks at the release."""
    return [
        AttackSpec(
            name="identity",
            version="1",
            summary="the encoding itself, rescaled to the energy of a standardised image",
            reference="a baseline every reconstruction must beat",
            factory="harness_plugins.attacks.identity:Identity",
            needs=(frozenset({Channel.ENCODINGS}),),
            companion=True,
            controls=(
                Control("none", "fashion-mini", "snr_db", 25.0, options={"private_size": 100}),
            ),
            formula="x^ = x~ / rms(x~), one factor for the whole release",
            weaknesses=("amplified noise scores below the mean image, near -3 dB",),
            example="harness evaluate --attack 'identity'",
        )
    ]

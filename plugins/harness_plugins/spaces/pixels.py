"""`pixels`: encodings live where images do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import AssetFolder, Config, Space, SpaceSpec, hookimpl

if TYPE_CHECKING:
    from torch import Tensor


class Pixels(Space[Config]):
    """Images themselves, which the engine standardises with their dataset's mean and deviation."""

    def embed(self, images: Tensor, assets: AssetFolder) -> Tensor:
        """Images [b, c, h, w], unchanged."""
        return images


@hookimpl
def harness_spaces() -> list[SpaceSpec]:
    """The identity space."""
    return [
        SpaceSpec(
            name="pixels",
            version="1",
            summary="the images themselves, standardised per channel",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "appendix E, table 5",
            factory="harness_plugins.spaces.pixels:Pixels",
            formula="z = (x - mean) / std, per channel",
            example="harness evaluate --space pixels",
            extracts=False,
        )
    ]

"""What an attack does with a released encoder: ask it, and see that the features are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import CellFailed

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

_BATCH = 256


def embed(view: View, images: Tensor) -> Tensor:
    """The features [n, ...] of standardised images [n, *view.shape]; without gradients."""
    with torch.no_grad():
        parts = [view.feature_encoder(batch) for batch in images.split(_BATCH)]
    return torch.cat(parts)


def require_own_features(view: View) -> None:
    """CellFailed where the released features are not of the shape that the encoder makes."""
    made = embed(view, torch.zeros(1, *view.shape, device=view.device)).shape[1:]
    if view.features.shape[1:] != made:
        raise CellFailed(
            f"the released features have shape {tuple(view.features.shape[1:])}, and the encoder "
            f"makes {tuple(made)} of an image of shape {tuple(view.shape)}: they are not its own."
        )

"""Images from one resolution to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import interpolate

from harness.api import NotApplicable

if TYPE_CHECKING:
    from torch import Tensor


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Images [n, c, h, w] to [n, c, height, width], bilinear with antialiasing."""
    if images.shape[-2:] == (height, width):
        return images
    return interpolate(
        images, size=(height, width), mode="bilinear", align_corners=False, antialias=True
    )


def fit_images(encodings: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Encodings [n, c, h', w'] at the resolution of `shape` (c, h, w).

    Raises NotApplicable for encodings that are no images of as many channels.
    """
    if encodings.dim() != 4 or len(shape) != 3 or encodings.shape[1] != shape[0]:
        raise NotApplicable(
            f"encodings of shape {tuple(encodings.shape[1:])} are not images like the targets "
            f"({tuple(shape)}); this attack works in the space 'pixels'."
        )
    return resize(encodings, shape[1], shape[2])

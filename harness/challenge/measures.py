"""The InstaHide challenge's measures of a decryption.

By the challenge's own rules each encoding has one decryption, which is compared with every
private image mixed in it; a measure is the maximum, minimum or mean of what that gives, averaged
over all encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from harness.challenge.opening import Truth

Compare = Callable[["Tensor", "Tensor"], "Tensor"]
"""Images and truth [m, c, h, w] in [0,1] to [m] float64."""

LEAKS_MORE: dict[str, Literal["higher", "lower"]] = {
    "max_ssim": "higher",
    "mean_ssim": "higher",
    "min_l2": "lower",
    "max_l2": "lower",
    "mean_l2": "lower",
}


def l2(images: Tensor, truth: Tensor) -> Tensor:
    """[m] float64: mean squared difference of images [m, c, h, w], as if they were in [-1,1].

    Both are in [0,1], where it is a quarter of that.
    """
    return 4 * (images - truth).double().square().flatten(1).mean(1)


@dataclass(frozen=True)
class Mixtures:
    """Which private images are in which encoding.

    `targets` [encodings, k] int64 are the private images, 0 where `own` [encodings, k] is False;
    `primary` [encodings] is the first of them.
    """

    targets: Tensor
    own: Tensor
    primary: Tensor


def mixtures(truth: Truth) -> Mixtures:
    """Those of all encodings that hold a private image."""
    own, sources = truth.own, truth.sources.flatten(0, 1)
    some = own.any(1)
    own, sources = own[some], sources[some].where(own[some], 0)
    primary = sources.gather(1, own.int().argmax(1, keepdim=True)).squeeze(1)
    return Mixtures(sources, own, primary)


def by_images(images: Tensor, truth: Tensor, mixed: Mixtures, compare: Compare) -> Tensor:
    """[encodings, k] float64: the image of each encoding's primary against all that are in it.

    `images` and `truth` [n, c, h, w] are in one order. NaN where a source is public. Each pair of
    images is compared once.
    """
    import numpy as np
    import torch

    n = len(truth)
    codes = (mixed.primary[:, None] * n + mixed.targets)[mixed.own]
    pairs, places = map(torch.from_numpy, np.unique(codes.numpy(), return_inverse=True))
    values = compare(images[pairs // n], truth[pairs % n])
    table = torch.full(mixed.own.shape, torch.nan, dtype=torch.float64)
    table[mixed.own] = values[places]
    return table


def by_encoding(decryptions: Tensor, truth: Tensor, mixed: Mixtures, compare: Compare) -> Tensor:
    """[encodings, k] float64: each decryption against all private images in its encoding."""
    import torch

    table = torch.full(mixed.own.shape, torch.nan, dtype=torch.float64)
    for column, own in enumerate(mixed.own.T):
        if not own.any():  # public images alone
            continue
        table[own, column] = compare(decryptions[own], truth[mixed.targets[own, column]])
    return table


def summed_up(ssim: Tensor | None, squared: Tensor) -> dict[str, float]:
    """The measures of [encodings, k] values, averaged over encodings.

    Those of SSIM are left out where there is none.
    """
    import torch

    found = {
        "min_l2": squared.nan_to_num(torch.inf).amin(1),
        "max_l2": squared.nan_to_num(-torch.inf).amax(1),
        "mean_l2": squared.nanmean(1),
    }
    if ssim is not None:
        best = ssim.nan_to_num(-torch.inf).amax(1)
        found = {"max_ssim": best, "mean_ssim": ssim.nanmean(1), **found}
    return {name: float(values.mean()) for name, values in found.items()}

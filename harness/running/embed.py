"""Embed: images become the space's features, scaled by those of the public pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.api import CellFailed, Scale, Splits

if TYPE_CHECKING:
    from torch import Tensor


def embed(splits: Splits, features_of: Callable[[Tensor], Tensor]) -> Splits:
    """The same splits with features [n, c, h, w] float32 in place of images, and their scale.

    One mean and one deviation, of all the public pool's features, serve every channel: how the
    channels compare is the extractor's, and a channel that is hardly ever on is not blown up. The
    private images do not speak of themselves before they are protected. Raises CellFailed where
    features are not maps of finite numbers.
    """
    private, public, test = (
        part.map(lambda images: _checked(features_of(images)))
        for part in (splits.private, splits.public, splits.test)
    )
    scale = _scale(public.images)
    return replace(splits, private=private, public=public, test=test, scale=scale)


def _checked(features: Tensor) -> Tensor:
    if features.ndim != 4 or not bool(features.isfinite().all()):
        raise CellFailed(
            f"the space returned features of shape {tuple(features.shape)}; wanted [n, c, h, w], "
            "all of them finite"
        )
    return features


def _scale(features: Tensor) -> Scale:
    """In float64, where the order of summation does not show; constant features keep theirs."""
    import torch

    std, mean = (value.item() for value in torch.std_mean(features.double(), correction=0))
    channels = features.shape[1]
    return Scale((mean,) * channels, (std if std > 0 else 1.0,) * channels, low=None, high=None)

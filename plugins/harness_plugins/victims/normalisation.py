"""The choice of normalisation that some victims offer. Declarations read it: no torch up here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn

Norm = Literal["batch", "group"]

NORM_CHOICE = "batch: BatchNorm; group: GroupNorm, which sees one image at a time, as dpsgd needs"

_MOST_GROUPS = 32


def normalisation(kind: Norm, channels: int) -> nn.Module:
    """BatchNorm or GroupNorm behind a convolution of so many channels."""
    from torch import nn

    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(groups_of(channels), channels)


def groups_of(channels: int) -> int:
    """The most groups up to 32 (Wu & He 2018) that share the channels, two or more to each.

    A group of one channel would be nothing but zeros where the image has shrunk to one pixel.
    """
    most = max(1, min(_MOST_GROUPS, channels // 2))
    return max(groups for groups in range(1, most + 1) if channels % groups == 0)

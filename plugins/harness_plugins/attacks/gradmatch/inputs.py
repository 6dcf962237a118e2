"""What the model's inputs can be, by the law of the defense that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Channel

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

EXERCISE = 200
"""Public images that are encoded to see what inputs look like."""
UNRELATED, RELATED = 0.1, 0.3
"""Correlation of neighbouring pixels below which there is none, and above which there is."""


@dataclass(frozen=True)
class Inputs:
    """What may be between `low` and `high` [c, 1, 1], or has no bounds where they are None.

    Steps are taken in the deviation `unit`. Signs are `folded` where they are random, with
    smooth absolute values under them.
    """

    low: Tensor | None
    high: Tensor | None
    unit: float = 1.0
    folded: bool = False

    def hold(self, inputs: Tensor) -> None:
        """Put inputs [..., c, h, w] in units back into their range, in place."""
        if self.low is not None and self.high is not None:
            inputs.copy_(inputs.maximum(self.low / self.unit).minimum(self.high / self.unit))


def expected(view: View) -> Inputs:
    """Plain images where no encoder is known, else what the encoder makes of public ones."""
    low, high = _bounds(view)
    if not (view.has(Channel.ENCODER) and view.has(Channel.PUBLIC)):
        return Inputs(low, high)
    exercise = view.public[:EXERCISE]
    made = view.encoder.encode(exercise, view.public, view.rng.stream(use="exercise")).images
    made = made.to(view.device)
    if made.ndim != 4:
        return Inputs(None, None, max(1.0, float(made.std())))
    folded = bool(_relation(made) < UNRELATED and _relation(made.abs()) > RELATED)
    if folded and low is not None and high is not None:
        most = torch.maximum(low.abs(), high.abs())
        return Inputs(-most, most, folded=True)
    if low is None or high is None or bool(((made < low - 1e-4) | (made > high + 1e-4)).any()):
        return Inputs(None, None, max(1.0, float(made.std())), folded)
    return Inputs(low, high)


def _bounds(view: View) -> tuple[Tensor | None, Tensor | None]:
    scale = view.scale
    if not scale.of_images or len(view.shape) != 3:
        return None, None
    ends = (
        scale.standardise(torch.full(view.shape, end, device=view.device))[:, :1, :1]
        for end in (0.0, 1.0)
    )
    low, high = ends
    return low, high


def _relation(images: Tensor) -> Tensor:
    """Correlation of horizontal neighbours over all images, channel means taken out."""
    centred = images - images.mean((0, 2, 3), keepdim=True)
    product = (centred[..., 1:] * centred[..., :-1]).mean()
    return product / centred.square().mean().clamp(min=1e-12)


def input_shape(view: View) -> tuple[int, ...]:
    """Shape of one input of the model: the targets', unless encodings have another."""
    if not (view.has(Channel.ENCODER) and view.has(Channel.PUBLIC)):
        return view.shape
    stream = view.rng.stream(use="shape")
    made = view.encoder.encode(view.public[:EXERCISE], view.public, stream)
    return tuple(made.images.shape[1:])

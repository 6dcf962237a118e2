"""Private images moved about before each round of encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from harness.api import CellFailed
from harness_plugins.defenses.instahide.windows import (
    axes_of,
    blocks,
    look,
    of_images,
    window_at,
)
from harness_plugins.mixing import mix

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import SamplesOnDemand, Stream

Law = Literal["crop-flip", "affine"]

_PADDING = 4
_NUMBERS = 6  # drawn for each image, whatever the law needs


@dataclass(frozen=True)
class Moves:
    """One move of every image, for one round; `numbers` [n, 6] float32 in [0,1)."""

    law: Law
    numbers: Tensor
    black: Tensor

    def mix(self, samples: SamplesOnDemand, sources: Tensor, weights: Tensor) -> Tensor:
        """`mixing.mix` of the moved images, which are made when they are used.

        A moved image is made k times so that there is never a second copy of all of them.
        """
        mixed = torch.empty(len(sources), *samples.shape, device=self.black.device)
        for block in blocks(len(sources), sources.shape[1] * mixed[:1].numel()):
            rows = sources[block]
            places = torch.arange(rows.numel()).view(rows.shape)
            mixed[block] = mix(self.move(samples, rows.flatten()), places, weights[block])
        return mixed

    def move(self, samples: SamplesOnDemand, rows: Tensor) -> Tensor:
        """The images `rows` [b] of samples [n, c, h, w], each in this round's place."""
        change = _crop_flip if self.law == "crop-flip" else _affine
        numbers = self.numbers[rows].to(self.black.device)
        return change(samples[rows].images, numbers, self.black)


def draw_moves(samples: SamplesOnDemand, law: Law, rng: Stream) -> Moves:
    """Moves for samples [n, c, h, w]; black is the least value of each channel among them.

    Standardised images do not say where black is; this is it wherever any image has a black
    pixel. CellFailed for what is not images.
    """
    if not of_images(samples.shape):
        raise CellFailed(
            f"augment={law} moves images [c, h, w] of 1 or 3 channels and sides above 4, not "
            f"samples of shape {list(samples.shape)}; use augment=none."
        )
    parts = blocks(len(samples), math.prod(samples.shape))
    least = torch.stack([samples[part].images.amin((0, 2, 3)) for part in parts]).amin(0)
    return Moves(law, rng.uniform(len(samples), _NUMBERS).float(), least.view(1, -1, 1, 1))


def _crop_flip(images: Tensor, numbers: Tensor, black: Tensor) -> Tensor:
    """A crop at a whole pixel out of 4 pixels of padding, and an even chance of mirroring.

    The official code's, by indices alone: values are kept to the bit.
    """
    count, channels, height, width = images.shape
    down, across = (numbers[:, :2] * (2 * _PADDING + 1)).long().unbind(1)
    y = torch.arange(height, device=images.device) + down[:, None]
    x = torch.arange(width, device=images.device).expand(count, -1)
    x = torch.where(numbers[:, 2:3] < 0.5, width - 1 - x, x) + across[:, None]
    padded = _framed(images, black).flatten(2)
    wide = width + 2 * _PADDING
    places = (y[:, :, None] * wide + x[:, None, :]).view(count, 1, -1).expand(-1, channels, -1)
    return padded.gather(2, places).view(images.shape)


def _framed(images: Tensor, black: Tensor) -> Tensor:
    """Images with 4 black pixels on every side."""
    count, channels, height, width = images.shape
    tall, wide = height + 2 * _PADDING, width + 2 * _PADDING
    framed = black.expand(count, channels, tall, wide).contiguous()
    framed[..., _PADDING:-_PADDING, _PADDING:-_PADDING] = images
    return framed


def _affine(images: Tensor, numbers: Tensor, black: Tensor) -> Tensor:
    """A window of half to all of a side, then rotation to ±90° and translation to ±half a side.

    What Luo et al. attack; sizes of the window are not theirs, who give none.
    """
    turn, right, low, size, across, down = numbers.view(-1, _NUMBERS, 1, 1).unbind(1)
    (wide, high), (window_x, window_y) = window_at((1 + size) / 2, across, down)
    x, y = axes_of(images)
    x, y = x * wide + window_x, y * high + window_y
    angle = (turn - 0.5) * math.pi
    cosine, sine = angle.cos(), angle.sin()
    tall = images.shape[-2] / images.shape[-1]
    turned_x = x * cosine - y * sine * tall + (2 * right - 1)
    turned_y = x * sine / tall + y * cosine + (2 * low - 1)
    return look(images - black, turned_x, turned_y, "zeros") + black

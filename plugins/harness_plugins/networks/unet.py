"""The three-level U-Net, and a denoiser that is told of each image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


def two_convolutions(inputs: int, outputs: int, normalised: bool) -> nn.Sequential:
    """Two convolutions; GroupNorm of up to eight groups before each activation if asked."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers.append(nn.Conv2d(width, outputs, 3, padding=1))
        if normalised:
            layers.append(nn.GroupNorm(_groups(outputs), outputs))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def start_at_zero(layer: nn.Conv2d) -> None:
    """Let a layer start by answering zero."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


def _groups(channels: int) -> int:
    return max(g for g in (8, 4, 2, 1) if channels % g == 0)


class UNet(nn.Module):
    """inputs → B → 2B → 4B → 8B and back (the paper's appendix F), for any image size.

    `outputs` planes of the inputs' size; they start at zero where `from_zero`.
    """

    def __init__(
        self, inputs: int, outputs: int, base: int, *, normalised: bool, from_zero: bool
    ) -> None:
        super().__init__()
        widths = [base, 2 * base, 4 * base, 8 * base]
        self.down = nn.ModuleList(
            two_convolutions(a, b, normalised)
            for a, b in zip([inputs, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in widths[2::-1])
        self.join = nn.ModuleList(two_convolutions(2 * b, b, normalised) for b in widths[2::-1])
        self.last = nn.Conv2d(base, outputs, 1)
        if from_zero:
            start_at_zero(self.last)

    def forward(self, planes: Tensor) -> Tensor:
        """[n, inputs, h, w] to [n, outputs, h, w]."""
        height, width = planes.shape[-2:]
        x = pad(planes, (0, -width % 8, 0, -height % 8), mode="replicate")
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        planes_out: Tensor = self.last(x)
        return planes_out[..., :height, :width]


class Denoiser(nn.Module):
    """A U-Net that also receives a vector per image, spread over eight planes."""

    def __init__(self, planes: int, vector: int, outputs: int, base: int) -> None:
        super().__init__()
        self.embed = nn.Linear(vector, 8)
        self.unet = UNet(planes + 8, outputs, base, normalised=True, from_zero=True)

    def forward(self, planes: Tensor, vector: Tensor) -> Tensor:
        """The correction [n, outputs, h, w] for planes [n, p, h, w] and vectors [n, v]."""
        told = self.embed(vector)[:, :, None, None].expand(-1, -1, *planes.shape[-2:])
        correction: Tensor = self.unet(torch.cat([planes, told], 1))
        return correction

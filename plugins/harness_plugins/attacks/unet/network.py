"""The three-level U-Net, and a decoder of feature maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


def _double(inputs: int, outputs: int, normalised: bool) -> nn.Sequential:
    """Two convolutions; GroupNorm of up to eight groups before each activation if asked."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers.append(nn.Conv2d(width, outputs, 3, padding=1))
        if normalised:
            layers.append(nn.GroupNorm(_groups(outputs), outputs))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def _silence(layer: nn.Conv2d) -> None:
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
            _double(a, b, normalised) for a, b in zip([inputs, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in widths[2::-1])
        self.join = nn.ModuleList(_double(2 * b, b, normalised) for b in widths[2::-1])
        self.last = nn.Conv2d(base, outputs, 1)
        if from_zero:
            _silence(self.last)

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


class Decoder(nn.Module):
    """Feature maps or vectors to planes of `shape` (c, h, w), which start at zero."""

    def __init__(self, features: tuple[int, ...], shape: tuple[int, ...], base: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (-(-height // 8), -(-width // 8))
        self.shape = (height, width)
        self.enter = self._entry(features, 8 * base)
        steps: list[nn.Module] = []
        for b in (4 * base, 2 * base, base):
            steps += [nn.ConvTranspose2d(2 * b, b, 2, 2), _double(b, b, normalised=True)]
        self.steps = nn.Sequential(*steps)
        self.last = nn.Conv2d(base, channels, 1)
        _silence(self.last)

    def _entry(self, features: tuple[int, ...], width: int) -> nn.Module:
        """Maps are brought to the coarsest size with their detail kept as channels."""
        if len(features) == 3:
            channels = features[0] * 16
            return nn.Sequential(_Tiles(self.size), nn.Conv2d(channels, width, 3, padding=1))
        flat = int(torch.Size(features).numel())
        spread = nn.Linear(flat, width * self.size[0] * self.size[1])
        return nn.Sequential(nn.Flatten(), spread, nn.Unflatten(1, (width, *self.size)))

    def forward(self, features: Tensor) -> Tensor:
        """[n, *features] to [n, c, h, w]."""
        planes: Tensor = self.last(self.steps(self.enter(features)))
        return planes[..., : self.shape[0], : self.shape[1]]


class _Tiles(nn.Module):
    """Maps resized to four times the coarsest size, then 4x4 tiles become channels."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.resize = nn.Upsample((4 * size[0], 4 * size[1]), mode="bilinear")
        self.tiles = nn.PixelUnshuffle(4)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, p, h, w] to [n, 16p, *size]."""
        tiled: Tensor = self.tiles(self.resize(maps))
        return tiled

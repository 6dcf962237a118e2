"""The network that guesses signs: a U-Net over tiles of 2x2 values."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from harness_plugins.networks import training
from harness_plugins.networks.unet import Denoiser

_TILE = 2
_BATCH = 256


class SignNetwork(nn.Module):
    """Log-odds of signs from absolute values and what is told of each image.

    Values of a tile become channels, which is four times as fast as working at full size. The
    log-odds are halved: tanh of them is the expected sign. They start at zero.
    """

    def __init__(self, channels: int, told: int, base: int) -> None:
        super().__init__()
        planes = channels * _TILE**2
        self.body = Denoiser(planes, told, planes, base)

    @classmethod
    def of(cls, kept: dict[str, Tensor], channels: int) -> SignNetwork:
        """The network that `training.snapshot` kept, ready for use."""
        told = kept["net.body.embed.weight"].shape[1]
        base = kept["net.body.unet.last.weight"].shape[1]
        network = cls(channels, told, base).to(kept["net.body.embed.weight"].device)
        training.restore(network, kept)
        return network

    def forward(self, seen: Tensor, told: Tensor) -> Tensor:
        """[n, c, h, w] for absolute values [n, c, h, w] and vectors [n, v]."""
        height, width = seen.shape[-2:]
        whole = pad(seen, (0, -width % _TILE, 0, -height % _TILE), mode="replicate")
        tiles = pixel_unshuffle(whole, _TILE).contiguous(memory_format=torch.channels_last)
        odds: Tensor = pixel_shuffle(self.body(tiles, told), _TILE)
        return odds[..., :height, :width]

    @torch.no_grad()
    def odds(self, seen: Tensor, told: Tensor) -> Tensor:
        """`forward` in batches, without gradients."""
        parts = zip(seen.split(_BATCH), told.split(_BATCH), strict=True)
        return torch.cat([self(planes, vector) for planes, vector in parts])


def build(channels: int, told: int, base: int, device: torch.device) -> SignNetwork:
    """An untrained network."""
    network = SignNetwork(channels, told, base).to(device)
    training.channels_last(network)
    return network

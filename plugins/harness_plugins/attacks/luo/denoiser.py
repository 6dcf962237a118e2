"""The denoiser: residual non-local attention (Zhang et al. 2019), as Luo et al. end with."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import interpolate, pad, pixel_shuffle, pixel_unshuffle, relu, softmax

from harness_plugins.attacks.luo.comparative import Residual

_ATTENDED = 400  # places that one place looks at, at the most


class Elsewhere(nn.Module):
    """Each place and what is like it elsewhere (a non-local block), at first unchanged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = max(1, width // 2)
        self.ask = nn.Conv2d(width, self.width, 1)
        self.key = nn.Conv2d(width, self.width, 1)
        self.value = nn.Conv2d(width, self.width, 1)
        self.back = nn.Conv2d(self.width, width, 1)
        nn.init.zeros_(self.back.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, width, h, w]."""
        high, wide = maps.shape[-2:]
        step = max(1, round((high * wide / _ATTENDED) ** 0.5))
        seen = maps[..., ::step, ::step]
        keys, values = self.key(seen).flatten(2), self.value(seen).flatten(2)
        odds = self.ask(maps).flatten(2).mT @ keys / self.width**0.5
        found = (softmax(odds, 2) @ values.mT).mT.unflatten(2, (high, wide))
        changed: Tensor = maps + self.back(found)
        return changed


class Group(nn.Module):
    """x + trunk(x) sigmoid(mask(x)); the mask is made at half the size."""

    def __init__(self, width: int, *, elsewhere: bool) -> None:
        super().__init__()
        self.trunk = nn.Sequential(Residual(width, width), Residual(width, width))
        self.elsewhere = Elsewhere(width) if elsewhere else nn.Identity()
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.mask = Residual(width, width)
        self.last = nn.Conv2d(width, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, width, h, w]."""
        low = self.mask(self.down(self.elsewhere(maps)))
        mask = interpolate(low, size=maps.shape[-2:], mode="bilinear")
        changed: Tensor = maps + self.trunk(maps) * self.last(relu(mask)).sigmoid()
        return changed


class Denoiser(nn.Module):
    """Images to better ones; at first it changes nothing. The outer groups look elsewhere."""

    def __init__(self, channels: int, groups: int, width: int, tile: int) -> None:
        super().__init__()
        self.tile = tile
        planes = channels * tile**2
        self.enter = nn.Conv2d(planes, width, 3, 1, 1)
        outer = {0, groups - 1}
        self.groups = nn.Sequential(
            *(Group(width, elsewhere=number in outer) for number in range(groups))
        )
        self.last = nn.Conv2d(width, planes, 3, 1, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        """[n, c, h, w]."""
        height, width = images.shape[-2:]
        whole = pad(images, (0, -width % self.tile, 0, -height % self.tile), mode="replicate")
        change = self.last(self.groups(self.enter(pixel_unshuffle(whole, self.tile))))
        better: Tensor = images + pixel_shuffle(change, self.tile)[..., :height, :width]
        return better

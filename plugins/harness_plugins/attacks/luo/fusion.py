"""The fusion network: members of a cluster relaxed, put together, and brought to one image.

The paper's network relaxes each member (a convolution of stride 2), widens it again (a transposed
convolution and a block) and takes the maximum over up to 10 members, the mean over more. Here
members are put together between the two, which costs a quarter. That serves members which lie in
one place. Where the defense moves images about, no place of one member is that of another, and
what all have in common is no map: so a second path takes what the likeness learned of each member,
its place among all encodings, averages places by how well they agree, and draws maps from that
and the class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, softmax

from harness_plugins.attacks.luo.comparative import Residual

FEW = 10
"""Members up to which the maximum is taken, above it the mean."""


@dataclass(frozen=True)
class Heap:
    """Clusters of up to M members each: `seen` [b, M, *shape] over their weight.

    `places` [b, M, e] are those of a likeness, `share` [b, M] is the weight, 0 where there is no
    member; `kind` [b, classes] the class.
    """

    seen: Tensor
    places: Tensor
    share: Tensor
    kind: Tensor


class Relaxation(nn.Module):
    """Members to maps of half their size."""

    def __init__(self, channels: int, base: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(channels + 1, base, 5, 2, 2)
        self.block = Residual(base, base)

    def forward(self, seen: Tensor, share: Tensor) -> Tensor:
        """[n, base, h/2, w/2] of members [n, c, h, w]."""
        weight = share.view(-1, 1, 1, 1).expand(-1, 1, *seen.shape[-2:])
        maps: Tensor = self.block(self.enter(torch.cat([seen * weight, weight], 1)))
        return maps


class Agreement(nn.Module):
    """The mean of places, those that agree with the others counting more."""

    def __init__(self, places: int, classes: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(places, width)
        self.ask = nn.Linear(width + classes, width)
        self.key = nn.Linear(width, width)
        self.trust = nn.Linear(1, 1)
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(width, width))

    def forward(self, heap: Heap) -> tuple[Tensor, Tensor]:
        """[b, width] of clusters, and the part [b, M] that each member has in it."""
        there = (heap.share > 0).to(heap.places)
        even = there / there.sum(1, keepdim=True).clamp(min=1)
        codes = self.first(heap.places)
        mean = (codes * even.unsqueeze(2)).sum(1)
        question = self.ask(torch.cat([mean, heap.kind], 1)).unsqueeze(1)
        odds = (question * self.key(codes)).sum(2) / codes.shape[2] ** 0.5
        odds = odds + self.trust(heap.share.unsqueeze(2)).squeeze(2)
        part = softmax(odds.masked_fill(there == 0, -1e9), 1)
        return self.last((codes * part.unsqueeze(2)).sum(1)), part


class Fusion(nn.Module):
    """What is to be changed in a first guess [b, c, h, w] of the image of a cluster."""

    def __init__(self, shape: tuple[int, ...], places: int, classes: int, base: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (height, width)
        self.halved = (-(-height // 2), -(-width // 2))
        self.quartered = (-(-height // 4), -(-width // 4))
        self.relax = Relaxation(channels, base)
        self.agree = Agreement(places, classes, 8 * base)
        self.draw = nn.Linear(8 * base + classes, 2 * base * self.quartered[0] * self.quartered[1])
        self.shape = Residual(2 * base, 2 * base)
        self.wider = nn.ConvTranspose2d(2 * base, base, 2, 2)
        self.join = nn.Conv2d(3 * base, 2 * base, 3, 1, 1)
        self.joined = Residual(2 * base, 2 * base)
        self.widest = nn.ConvTranspose2d(2 * base, base, 2, 2)
        self.block = Residual(base + 2 * channels, base)
        self.last = nn.Conv2d(base, channels, 3, 1, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]

    def forward(self, heap: Heap, guess: Tensor) -> Tensor:
        """[b, c, h, w]; zeros at first."""
        b, most = heap.share.shape
        maps = self.relax(heap.seen.flatten(0, 1), heap.share.flatten()).unflatten(0, (b, most))
        there = (heap.share > 0).to(maps)
        code, part = self.agree(heap)
        mean = weighed(maps, part)
        drawn = self._drawn(torch.cat([code, heap.kind], 1))
        both = torch.cat([mean, _put_together(maps, there, mean), drawn], 1)
        joined = self.widest(relu(self.joined(self.join(relu(both)))))
        whole = joined[..., : self.size[0], : self.size[1]]
        planes = torch.cat([whole, guess, weighed(heap.seen, part)], 1)
        change: Tensor = self.last(relu(self.block(planes)))
        return change

    def _drawn(self, told: Tensor) -> Tensor:
        """[b, base, h/2, w/2] maps from codes."""
        coarse = self.draw(told).view(len(told), -1, *self.quartered)
        maps: Tensor = self.wider(relu(self.shape(coarse)))
        return maps[..., : self.halved[0], : self.halved[1]]


def weighed(members: Tensor, part: Tensor) -> Tensor:
    """[b, ...] the sum of members [b, M, ...] times their parts [b, M]."""
    return torch.einsum("bm,bm...->b...", part, members)


def _put_together(maps: Tensor, there: Tensor, mean: Tensor) -> Tensor:
    """The maximum over up to `FEW` members, the mean above."""
    absent = (there == 0).view(*there.shape, 1, 1, 1)
    most = maps.masked_fill(absent, -torch.inf).amax(1)
    few = there.sum(1).view(-1, 1, 1, 1) <= FEW
    return torch.where(few, most, mean)

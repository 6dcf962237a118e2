"""The public side of a cross-dataset mixture: random patches, flat ones left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    from harness.api import Stream

# A patch is flat below this share of the pool's median energy. The paper counts SIFT key points.
_FLAT = 0.25
_TRIES = 4
_NUMBERS = 3  # of one window: size, place across, place down


@dataclass(frozen=True)
class PublicPool:
    """Public samples [m, *shape], the rows that may be mixed, and what counts as flat.

    Where samples are no images, `flat` is None: patches are whole samples, and all may be used.
    """

    images: Tensor
    usable: Tensor
    flat: float | None


@dataclass(frozen=True)
class Patches:
    """What is mixed into n encodings: `rows` [n, c] of the pool, and `windows` onto them.

    `windows` [n, c, tries, 3] float32 in [0,1) are drawn beforehand, so that which ones are
    taken moves nothing else that is drawn.
    """

    pool: PublicPool
    rows: Tensor
    windows: Tensor | None

    def __getitem__(self, index: Tensor) -> Patches:
        """Those of some encodings."""
        windows = None if self.windows is None else self.windows[index]
        return Patches(self.pool, self.rows[index], windows)

    def add_to(self, mixed: Tensor, weights: Tensor) -> None:
        """Add the patches, times `weights` [n, c], to `mixed` [n, *shape] in place."""
        for block in blocks(len(mixed), self.rows.shape[1] * mixed[:1].numel()):
            rows = self.rows[block]
            if self.windows is None:
                mixed[block] += mix(self.pool.images, rows, weights[block])
            else:
                cut = textured_patches(self.pool, rows.flatten(), self.windows[block].flatten(0, 1))
                places = torch.arange(rows.numel()).view(rows.shape)
                mixed[block] += mix(cut, places, weights[block])


def public_pool(images: Tensor, count: int) -> PublicPool:
    """The pool of public samples [m, *shape] for mixtures of `count` different ones.

    Raises CellFailed where there are too few that are not flat.
    """
    usable, flat = torch.arange(len(images)), None
    if of_images(images.shape[1:]) and len(images):
        energies = torch.cat([energy(images[block]).cpu() for block in _spans(images)])
        flat = _FLAT * float(energies.median())
        usable = (energies >= flat).nonzero().flatten()
    if len(usable) < count:
        raise CellFailed(
            f"scheme=cross mixes {count} different public images into each encoding, and the "
            f"public pool has {len(usable)} of {len(images)} that are not flat; use more public "
            "images, a smaller k, or scheme=inside."
        )
    return PublicPool(images, usable, flat)


def draw_patches(pool: PublicPool, n: int, count: int, rng: Stream) -> Patches:
    """For each of n encodings `count` different public images, and windows onto them."""
    rows = pool.usable[draw_different(n, count, len(pool.usable), rng)]
    windows = None
    if pool.flat is not None:
        windows = rng.uniform(n, count, _TRIES, _NUMBERS).float()
    return Patches(pool, rows, windows)


def draw_different(n: int, count: int, among: int, rng: Stream) -> Tensor:
    """[n, count] int64 in 0..among-1, uniform, no row with one number twice; CellFailed if few.

    The j-th draw is of the among - j numbers left, counted past those already taken.
    """
    if among < count:
        raise CellFailed(f"{count} different images to mix with are needed, and there are {among}.")
    drawn = torch.empty(n, count, dtype=torch.int64)
    for column in range(count):
        number = rng.integers(among - column, n)
        for taken in drawn[:, :column].sort(dim=1).values.unbind(1):
            number += number >= taken
        drawn[:, column] = number
    return drawn


def energy(images: Tensor) -> Tensor:
    """[b] mean squared difference of neighbours in images [b, c, h, w]: 0 where all is flat."""
    down, across = images.diff(dim=-2).square(), images.diff(dim=-1).square()
    return down.flatten(1).mean(1) + across.flatten(1).mean(1)


def textured_patches(pool: PublicPool, rows: Tensor, windows: Tensor) -> Tensor:
    """[b, c, h, w]: of images `rows` [b] the first of the `windows` [b, tries, 3] not flat.

    An image none of whose windows will do is used whole: it is in the pool for its texture.
    """
    images = pool.images[rows.to(pool.images.device)]
    windows = windows.to(images.device)
    patches = cut_patches(images, windows[:, 0])
    waiting = torch.arange(len(rows), device=images.device)
    for chance in range(1, windows.shape[1] + 1):
        waiting = waiting[energy(patches[waiting]) < (pool.flat or 0.0)]
        if not len(waiting):
            break
        again = images[waiting]
        last = chance == windows.shape[1]
        patches[waiting] = again if last else cut_patches(again, windows[waiting, chance])
    return patches


def cut_patches(images: Tensor, windows: Tensor) -> Tensor:
    """Images [b, c, h, w] seen through windows [b, 3] in [0,1), resized to the whole.

    The first number becomes a relative size from a half to 1, the others its place.
    """
    size, across, down = windows.view(-1, _NUMBERS, 1, 1).unbind(1)
    (wide, high), (right, low) = window_at((1 + size) / 2, across, down)
    x, y = axes_of(images)
    return look(images, x * wide + right, y * high + low, "border")


def _spans(images: Tensor) -> list[slice]:
    return list(blocks(len(images), images[0].numel()))

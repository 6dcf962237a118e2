"""Fusion and denoiser together: images from clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from harness_plugins.attacks.luo.denoiser import Denoiser
from harness_plugins.attacks.luo.fusion import Fusion, Heap, weighed
from harness_plugins.networks.training import restore, snapshot

if TYPE_CHECKING:
    from harness.api import View
    from harness_plugins.attacks.luo.lessons import Lesson

Sizes = tuple[int, int, int, int, int]
_BATCH = 16


class Restorer(nn.Module):
    """Clusters to images about the mean image; knows the level of what it is shown."""

    centre: Tensor
    spread: Tensor
    means: Tensor
    levels: Tensor
    largest: Tensor

    def __init__(self, shape: tuple[int, ...], classes: int, sizes: Sizes) -> None:
        super().__init__()
        places, base, groups, width, tile = sizes
        self.classes = classes
        self.sizes = sizes
        self.fusion = Fusion(shape, places, classes, base)
        self.denoiser = Denoiser(shape[0], groups, width, tile) if groups else None
        self.register_buffer("centre", torch.zeros(shape))
        self.register_buffer("spread", torch.ones(()))
        self.register_buffer("means", torch.zeros(classes, *shape))
        self.register_buffer("levels", torch.zeros(classes, *shape))
        self.register_buffer("largest", torch.ones(()))
        self.gain = nn.Parameter(torch.zeros(()))

    @classmethod
    def fresh(cls, view: View, exam: Lesson, sizes: Sizes, largest: float) -> Restorer:
        """Untrained: it answers what the mean of members tells by one number."""
        made = cls(view.shape, view.classes, sizes)
        scaled = exam.members.scaled
        made.centre = scaled.mean(0)
        made.spread = (scaled - made.centre).std().clamp(min=1e-12)
        made.means = class_means(view.public.images, view.public.labels, view.classes)
        shown = (scaled - made.centre) / made.spread
        made.levels = class_means(shown, exam.members.leading, view.classes)
        made.gain.data.fill_(_gain(exam, shown, made))
        made.largest = torch.tensor(largest)
        return made.to(view.device)

    @classmethod
    def of(cls, view: View, kept: Mapping[str, Tensor]) -> Restorer:
        """From what `kept` said."""
        places, base, groups, width, tile = (int(size) for size in kept["sizes"].tolist())
        sizes = (places, base, groups, width, tile)
        made = cls(view.shape, view.classes, sizes).to(view.device)
        restore(made, dict(kept))
        return made

    def kept(self) -> Mapping[str, Tensor]:
        """What `of` reads."""
        return {**snapshot(self), "sizes": torch.tensor(self.sizes)}

    def forward(self, heap: Heap) -> tuple[Tensor, Tensor]:
        """(fused, denoised) [b, *shape] images of clusters."""
        shown = replace(heap, seen=(heap.seen - self.centre) / self.spread)
        guess = self.guess(shown)
        fused = guess + self.fusion(shown, guess)
        return fused, fused if self.denoiser is None else self.denoiser(fused)

    def guess(self, shown: Heap) -> Tensor:
        """[b, *shape] class means, and so much of the mean of members as regression takes."""
        there = (shown.share > 0).to(shown.seen)
        even = there / there.sum(1, keepdim=True).clamp(min=1)
        beyond = weighed(shown.seen, even) - torch.einsum("bk,k...->b...", shown.kind, self.levels)
        return torch.einsum("bk,k...->b...", shown.kind, self.means) + self.gain * beyond

    @torch.no_grad()
    def images(self, heap: Heap) -> Tensor:
        """[b, *shape], some at a time."""
        parts = zip(
            *(each.split(_BATCH) for each in (heap.seen, heap.places, heap.share, heap.kind)),
            strict=True,
        )
        return torch.cat([self(Heap(*part))[1] for part in parts])


def class_means(images: Tensor, labels: Tensor, classes: int) -> Tensor:
    """[classes, *shape] of images [n, *shape]; of a class without images the mean of all."""
    sums = images.new_zeros(classes, *images.shape[1:]).index_add_(0, labels, images)
    counts = labels.bincount(minlength=classes).to(sums).view(-1, *[1] * (images.ndim - 1))
    return torch.where(counts > 0, sums / counts.clamp(min=1), images.mean(0))


def _gain(exam: Lesson, shown: Tensor, made: Restorer) -> float:
    """The regression of images on the mean of their members, both about their classes."""
    images = exam.usable
    sums = shown.new_zeros(len(exam.images), *shown.shape[1:]).index_add_(0, exam.owner, shown)
    kinds = exam.labels[images]
    told = sums[images] / exam.count[images].view(-1, 1, 1, 1) - made.levels[kinds]
    truth = exam.images[images] - made.means[kinds]
    return float((told * truth).sum() / told.square().sum().clamp(min=1e-12))

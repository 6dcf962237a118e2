"""Reconstructions made without the release: what an attacker has before anything leaks.

Where an attack does not name its targets, the judge pairs its images with the truth in hand,
and that pairing alone lifts unrelated images by more than a decibel. So the nulls of such an
attack get the same help. As many of their guesses as the attack made are matched one to one
with the private images; the private images left over keep the null's guess for them. This goes
for the class means too. They do name their target, by its label; but that naming is one of the
assignments the matching may choose, so matching can only bring them nearer, and the null stays
the strongest that the same help allows. The mean image and the mean colour are one guess for
all: nothing changes. Where an attack named the batch of each image, nulls are matched within
batches likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.api import Samples, Stream
from harness.scoring.matching import as_they_are, assign, assign_within

if TYPE_CHECKING:
    from torch import Tensor

    from harness.scoring.matching import Domain

MEAN, CLASS_MEAN, RANDOM = "mean_image", "class_mean", "random_public"
COLOUR = "mean_colour"
CHUNK = 4096


@dataclass(frozen=True)
class Nulls:
    """`images` by null's name, each [n, c, h, w] in [0,1]; `notes` say what was not to be had."""

    images: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()


def make_nulls(
    public: Samples,
    truth: Samples,
    classes: tuple[str, ...],
    colour: tuple[float, ...],
    stream: Stream,
    domain: Domain = as_they_are,
) -> Nulls:
    """The nulls for each private image; `truth` has images in [0,1].

    `colour` is the dataset's mean by channel, which is public with its scale: as an image it
    scores 0 dB of SNR. It matters where public images come from elsewhere and mislead.
    `public` may be uint8 or in [0,1]. Deterministic given `stream`. Metrics on absolute values
    compare with what is known of absolute values, which is more than the absolute mean:
    `domain` folds the public images before they are averaged.
    """
    means, counts = _class_means(public, truth.images, len(classes), domain)
    mean = (means * counts.view(-1, 1, 1, 1)).sum(0) / counts.sum()
    empty = counts == 0
    means[empty] = mean
    labels = truth.labels.to(means.device)
    flat = truth.images.new_tensor(colour).view(-1, 1, 1)
    picks = stream.integers(len(public), len(truth))
    images = {
        MEAN: mean.expand_as(truth.images),
        CLASS_MEAN: means[labels],
        COLOUR: domain(flat.expand_as(truth.images)),
        RANDOM: domain(public[picks.to(public.images.device)].unit().images.to(truth.images)),
    }
    return Nulls(images, _notes(classes, empty.cpu(), labels.cpu()))


def match_nulls(nulls: Nulls, truth: Tensor, guesses: int) -> Nulls:
    """The nulls of an attack that made `guesses` reconstructions and named none of them."""
    images = {
        name: images if name in (MEAN, COLOUR) else _match(images, truth, guesses)
        for name, images in nulls.images.items()
    }
    return Nulls(images, nulls.notes)


def match_nulls_within(nulls: Nulls, truth: Tensor, groups: Tensor) -> Nulls:
    """The nulls of an attack that knew of which batch, `groups` [batches, b], each image is.

    An image that is primary in several batches is matched in the first.
    """
    groups = groups[: -(-len(set(groups.flatten().tolist())) // groups.shape[1])]
    members = groups.flatten()
    batches = groups.new_tensor(range(len(groups))).repeat_interleave(groups.shape[1])

    def matched(name: str, images: Tensor) -> Tensor:
        if name in (MEAN, COLOUR):
            return images
        own = images[members.to(images.device)]
        placed = images.clone()
        placed[assign_within(own, truth, batches, groups).to(images.device)] = own
        return placed

    return Nulls({n: matched(n, images) for n, images in nulls.images.items()}, nulls.notes)


def _match(images: Tensor, truth: Tensor, guesses: int) -> Tensor:
    matched = images.clone()
    matched[assign(images[:guesses], truth).to(images.device)] = images[:guesses]
    return matched


def _class_means(
    public: Samples, like: Tensor, classes: int, domain: Domain
) -> tuple[Tensor, Tensor]:
    """Mean public image of each class [classes, c, h, w] in [0,1], and how many each has.

    Works in chunks: a public pool of bytes is never held as floats at once.
    """
    import torch

    sums = torch.zeros(classes, *like.shape[1:], device=like.device, dtype=like.dtype)
    for start in range(0, len(public), CHUNK):
        part = public[slice(start, start + CHUNK)].unit()
        sums.index_add_(0, part.labels.to(like.device), domain(part.images.to(like)))
    counts = public.labels.bincount(minlength=classes).to(like)
    return sums / counts.clamp(min=1).view(-1, 1, 1, 1), counts


def _notes(classes: tuple[str, ...], empty: Tensor, labels: Tensor) -> tuple[str, ...]:
    """One sentence for each class of the private images that the public pool lacks."""
    return tuple(
        f"no public image of class '{classes[label]}': {CLASS_MEAN} falls back on {MEAN} for "
        f"its {count} private images"
        for label, count in enumerate(labels.bincount().tolist())
        if count and empty[label]
    )

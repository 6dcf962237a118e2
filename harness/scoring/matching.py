"""Which private image each reconstruction is judged against, and guesses that get as much help.

Nulls are reconstructions made without the release: what an attacker has before anything leaks.
Where an attack does not name its targets, the judge pairs its images with the truth in hand,
and that pairing alone lifts unrelated images by more than a decibel. So the nulls of such an
attack get the same help. As many of their guesses as the attack made are matched one to one
with the private images; the private images left over keep the null's guess for them. This goes
for the class means too. They do name their target, by its label; but that naming is one of the
assignments the matching may choose, so matching can only bring them nearer. The mean image and
the mean colour are one guess for all: nothing changes. What such help is really worth shows in
the codebook: a guesser who may leave the order to the judge shows another image for each of a
class. Where an attack named the batch of each image, nulls are matched within batches likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.api import CellFailed, Reconstruction, Samples, Scale, Splits, Stream
from harness.api.plugins import as_they_are
from harness.scoring.codebook import codebook
from harness.scoring.summary import OTHERS

if TYPE_CHECKING:
    from torch import Tensor

    Domain = Callable[[Tensor], Tensor]

CHUNK = 4096
"""Images that are worked on at a time."""
MEAN, CLASS_MEAN, RANDOM = "mean_image", "class_mean", "random_public"
COLOUR = "mean_colour"
CODEBOOK = "codebook"
"""Centroids of each class's public images, as many as it has private ones: of unnamed guesses."""
INFORMED = (CLASS_MEAN, CODEBOOK)
"""What is known of an image whose class is: how easy it is to guess."""


@dataclass(frozen=True)
class Matched:
    """Reconstructions in the order of the private images.

    `images` [n_private, c, h, w] float32 in [0,1], zeros where there is none; `found`
    [n_private] bool says where there is one. `unnamed` is how many reconstructions the truth
    had to be consulted for, because the attack did not name their targets; 0 if it did.
    `grouped`: it was consulted only about the order within batches that the attack did name.
    """

    images: Tensor
    found: Tensor
    unnamed: int = 0
    grouped: bool = False


def match(
    reconstruction: Reconstruction,
    truth: Tensor,
    scale: Scale,
    sources: Tensor | None = None,
    attack: str = "",
    groups: Tensor | None = None,
    domain: Domain = as_they_are,
) -> Matched:
    """Give each private image (`truth` [n, c, h, w] in [0,1]) at most one reconstruction.

    `sources` [rounds·n] is the primary private image of each encoding, for `rows`; `groups`
    [batches, b] those of each released gradient or update, for `batches`. Where the truth is
    consulted, images are compared in the `domain`, and placed as they are. Raises CellFailed,
    naming the attack, where what it returned cannot be judged.
    """
    who = f"attack '{attack}'" if attack else "the attack"
    try:
        images = scale.within(scale.restore(_checked(reconstruction, truth)))
        if reconstruction.batches is not None:
            return _within(reconstruction, images, truth, groups, domain)
        named = _named(reconstruction, len(images), len(truth), sources)
    except ValueError as error:
        raise CellFailed(f"{who} returned {error}") from None
    targets = assign(domain(images), domain(truth)) if named is None else named
    return _scatter(images, targets, truth, len(images) if named is None else 0)


def _within(
    reconstruction: Reconstruction,
    images: Tensor,
    truth: Tensor,
    groups: Tensor | None,
    domain: Domain,
) -> Matched:
    """Matched one to one within each batch; where batches hold one image, that is a name."""
    batches = reconstruction.batches
    if groups is None or batches is None:
        raise ValueError("`batches`, but this release has no gradients or updates to count")
    if reconstruction.targets is not None or reconstruction.rows is not None:
        raise ValueError("`batches` beside `targets` or `rows`; one of them says what is meant")
    batches = _indices("batches", batches, len(images), len(groups))
    most = int(batches.bincount(minlength=1).max())
    if most > groups.shape[1]:
        raise ValueError(f"{most} images of one batch; batches hold {groups.shape[1]}")
    targets = _distinct(assign_within(domain(images), domain(truth), batches, groups))
    alone = groups.shape[1] == 1
    return _scatter(images, targets, truth, 0 if alone else len(images), grouped=not alone)


def assign_within(images: Tensor, truth: Tensor, batches: Tensor, groups: Tensor) -> Tensor:
    """As `assign`, each image among the members `groups[batch]` of its batch alone."""
    targets = batches.clone()
    for batch in sorted(set(batches.tolist())):
        own = (batches == batch).nonzero().flatten()
        members = groups[batch]
        here = truth[members.to(truth.device)]
        targets[own] = members[assign(images[own.to(images.device)], here)]
    return targets


def assign(images: Tensor, truth: Tensor) -> Tensor:
    """The one-to-one matching of least total squared error: [m] int64 indices into `truth`.

    Both in [0,1], m ≤ n. Hungarian algorithm on the m×n distances.
    """
    import torch
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(squared_distances(images, truth).numpy())
    return torch.from_numpy(columns[rows.argsort()])


def squared_distances(images: Tensor, truth: Tensor) -> Tensor:
    """‖a_i − b_j‖² up to a constant of each row, [m, n] float32 on the CPU.

    ‖a‖² is left out: it is the same for every column, so no assignment depends on it.
    """
    import torch

    b = truth.flatten(1)
    centre = b.mean(0)
    b = b - centre
    energy = b.square().sum(1)
    chunks = torch.split(images.flatten(1), CHUNK)
    return torch.cat([(energy - 2 * (a - centre) @ b.T).cpu() for a in chunks])


def _checked(reconstruction: Reconstruction, truth: Tensor) -> Tensor:
    """The images as float32, if they are ones; ValueError says what they are instead.

    Floats of any width are answers: what an attack computed in is its own affair.
    """
    images = reconstruction.images
    if images is None:
        raise ValueError("no images")
    if not images.is_floating_point():
        raise ValueError(f"{str(images.dtype).removeprefix('torch.')} images; wanted floats")
    if images.ndim == 0 or images.shape[1:] != truth.shape[1:]:
        wanted = ", ".join(map(str, truth.shape[1:]))
        raise ValueError(f"images of shape {tuple(images.shape)}; wanted (m, {wanted})")
    if len(images) > len(truth):
        raise ValueError(f"{len(images)} reconstructions of {len(truth)} private images")
    images = images.to(truth)  # where what is too large for float32 is infinite
    bad = (~images.isfinite()).flatten(1).any(1).sum().item()
    if bad:
        raise ValueError(f"NaN or infinite values in {bad} of {len(images)} images")
    return images


def _named(
    reconstruction: Reconstruction, count: int, n_private: int, sources: Tensor | None
) -> Tensor | None:
    """The target of each reconstruction, or None where the attack named none."""
    if reconstruction.targets is not None and reconstruction.rows is not None:
        raise ValueError("both `targets` and `rows`; one of them says what is meant")
    if reconstruction.targets is not None:
        return _distinct(_indices("targets", reconstruction.targets, count, n_private))
    if reconstruction.rows is None:
        return None
    if sources is None:
        raise ValueError("`rows`, but this release has no encodings to count")
    rows = _indices("rows", reconstruction.rows, count, len(sources))
    return _distinct(sources.cpu()[rows])


def _indices(name: str, indices: Tensor, count: int, limit: int) -> Tensor:
    """`indices` on the CPU, if there are `count` whole numbers in 0..limit-1."""
    indices = indices.detach().cpu()
    if indices.shape != (count,) or indices.is_floating_point() or indices.is_complex():
        got = f"{indices.dtype} of shape {tuple(indices.shape)}"
        raise ValueError(f"`{name}` as {got}; wanted {count} whole numbers, one per image")
    indices = indices.long()
    low, high = (int(indices.min()), int(indices.max())) if count else (0, 0)
    if low < 0 or (count and high >= limit):
        raise ValueError(f"`{name}` from {low} to {high}; they count from 0 to {limit - 1}")
    return indices


def _distinct(targets: Tensor) -> Tensor:
    """`targets`, if none of them comes twice."""
    counts = targets.bincount(minlength=1)
    if counts.max() > 1:
        twice = int(counts.argmax())
        raise ValueError(f"more than one reconstruction of private image {twice}")
    return targets


def _scatter(
    images: Tensor, targets: Tensor, truth: Tensor, unnamed: int, grouped: bool = False
) -> Matched:
    """Reconstructions put where their targets are."""
    import torch

    index = targets.to(truth.device)
    placed = torch.zeros_like(truth)
    placed[index] = images
    found = torch.zeros(len(truth), dtype=torch.bool, device=truth.device)
    found[index] = True
    return Matched(placed, found, unnamed, grouped)


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


def with_codebook(
    nulls: Nulls,
    public: Samples,
    truth: Samples,
    stream: Stream,
    guesses: int,
    groups: Tensor | None = None,
    domain: Domain = as_they_are,
) -> Nulls:
    """And the codebook of whoever makes so many guesses and leaves their order to the judge.

    `groups` [batches, b] are those of each gradient, where the guesser knows them.
    """
    import torch

    whole = torch.arange(guesses)[None]
    piles = whole if groups is None else _first_round(groups).cpu().flip(0)
    drawn, labels = stream.stream(use=CODEBOOK), truth.labels.cpu()
    book = codebook(public, nulls.images[CLASS_MEAN], labels, drawn, domain, piles)
    return Nulls({**nulls.images, CODEBOOK: book}, nulls.notes)


def match_nulls(nulls: Nulls, truth: Tensor, guesses: int, groups: Tensor | None = None) -> Nulls:
    """The nulls of an attack that made `guesses` reconstructions and named none of them.

    They are matched with `truth` [n, c, h, w]. With `groups` [batches, b] the attack knew of which
    batch each image is; an image that is primary in several batches is matched in the first.
    Without guesses nothing changes.
    """
    import torch

    if not guesses:
        return nulls
    if groups is None:
        members, targets_of = torch.arange(guesses), partial(assign, truth=truth)
    else:
        groups = _first_round(groups)
        batches = torch.arange(len(groups)).repeat_interleave(groups.shape[1])
        members = groups.flatten()
        targets_of = partial(assign_within, truth=truth, batches=batches, groups=groups)

    def matched(name: str) -> Tensor:
        """A centroid without a place is no guess for whoever is left over."""
        images = nulls.images[name]
        own = images[members.to(images.device)]
        placed = nulls.images[CLASS_MEAN if name == CODEBOOK else name].clone()
        placed[targets_of(own).to(images.device)] = own
        return placed

    images = {n: x if n in (MEAN, COLOUR) else matched(n) for n, x in nulls.images.items()}
    return Nulls(images, nulls.notes)


def _first_round(groups: Tensor) -> Tensor:
    """The batches [batches, b] that hold every image once."""
    return groups[: -(-len(set(groups.flatten().tolist())) // groups.shape[1])]


def others_of_class(truth: Splits, count: int, stream: Stream) -> Samples:
    """For each of the first `count` private images another of its class, that is not private.

    They are test images, which no attack was shown; each is taken once, and again where there
    are too few. Where the test pool lacks the class they are public, and of any class where both
    do.
    """
    import torch

    labels = truth.private.labels[:count].cpu()
    tests, known = len(truth.test), torch.cat([truth.test.labels, truth.public.labels]).cpu()
    picks = torch.empty_like(labels)
    for label in sorted(set(labels.tolist())):
        alike = (known == label).nonzero().flatten()
        pools = (alike[alike < tests], alike, torch.arange(len(known)))
        pool = next(each for each in pools if len(each))
        own = (labels == label).nonzero().flatten()
        drawn = pool[stream.stream(label=label).permutation(len(pool))]
        picks[own] = drawn[torch.arange(len(own)) % len(drawn)]
    images = torch.empty(count, *truth.private.images.shape[1:])
    tested = picks < tests
    images[tested] = truth.test[picks[tested]].unit().images.cpu()
    images[~tested] = truth.public[picks[~tested] - tests].unit().images.cpu()
    return Samples(images, labels)


def few_others(truth: Splits, count: int) -> tuple[str, ...]:
    """One sentence for each class of which `others_of_class` has fewer test images than places."""
    wanted, there = (
        part.bincount(minlength=len(truth.classes)).tolist()
        for part in (truth.private.labels[:count].cpu(), truth.test.labels.cpu())
    )
    return tuple(
        f"{n} images of class '{name}' are held against {there[label]} test images of it: "
        f"{OTHERS} falls back on {'images taken again' if there[label] else 'public images'}"
        for label, (name, n) in enumerate(zip(truth.classes, wanted, strict=True))
        if n > there[label]
    )


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

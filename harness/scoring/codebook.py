"""What a clever guesser shows who knows labels alone: k-means of the public images of each class.

An attack that names no target returns a pile of images, and the judge picks the place of each. A
guesser with such help does not repeat the class mean: he spreads his guesses over what images of
the class look like. Matched like the attack's, his are worth 1 to 2 dB more than the class mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.api import Samples, Stream

if TYPE_CHECKING:
    from torch import Tensor

MOST = 4096
"""Public images of a class that are clustered: bounds time."""
ITERATIONS = 15
"""Of Lloyd's algorithm; scores no longer move by then."""


def codebook(
    public: Samples,
    fallback: Tensor,
    labels: Tensor,
    stream: Stream,
    domain: Callable[[Tensor], Tensor],
    piles: Tensor,
) -> Tensor:
    """A centroid [n, c, h, w] for each image of each pile [piles, b], another for each of a class.

    The `labels` [n] of a pile are counted, nothing else is asked of the private images.
    `fallback` [n, c, h, w] stands in for images of no pile, and for centroids that a class has too
    few public images for. `public` images are taken in their `domain`.
    """
    found, made = fallback.clone(), {}
    known = set(public.labels.tolist())
    for members in piles:
        for label in known & set(labels[members].tolist()):
            own = members[labels[members] == label]
            if (label, len(own)) not in made:
                images = _of_class(public, label, stream.stream(label=label), domain, fallback)
                drawn = stream.stream(label=label, count=len(own))
                made[label, len(own)] = centroids(images, len(own), drawn)
            few = made[label, len(own)]
            found[own[: len(few)].to(found.device)] = few
    return found


def _of_class(
    public: Samples, label: int, stream: Stream, domain: Callable[[Tensor], Tensor], like: Tensor
) -> Tensor:
    """Public images of the class, in an order of the stream's, at most `MOST`."""
    own = (public.labels == label).nonzero().flatten().cpu()
    own = own[stream.permutation(len(own))[:MOST]]
    return domain(public[own.to(public.labels.device)].unit().images.to(like))


def centroids(images: Tensor, count: int, stream: Stream) -> Tensor:
    """The means [≤ count, c, h, w] of clusters of `images`; the images, where they are as few.

    Lloyd's algorithm from images that k-means++ picks; a cluster that runs empty keeps its mean.
    """
    import torch

    if len(images) <= count:
        return images
    flat = images.flatten(1)
    means = flat[_seeds(flat, count, stream)]
    for _ in range(ITERATIONS if count > 1 else 1):
        energy = means.square().sum(1)
        own = (energy - 2 * flat @ means.T).argmin(1)
        sums = torch.zeros_like(means).index_add_(0, own, flat)
        sizes = own.bincount(minlength=count)[:, None]
        means = torch.where(sizes > 0, sums / sizes.clamp(min=1), means)
    return means.view(count, *images.shape[1:])


def _seeds(flat: Tensor, count: int, stream: Stream) -> list[int]:
    """Indices of images far from each other (Arthur and Vassilvitskii 2007)."""
    draws = stream.uniform(count).double().to(flat.device)
    energy = flat.square().sum(1)

    def from_image(i: int) -> Tensor:
        return (energy + energy[i] - 2 * flat @ flat[i]).clamp(min=0)

    chosen = [int(draws[0] * len(flat))]
    nearest = from_image(chosen[0])
    for draw in draws[1:]:
        reached = nearest.double().cumsum(0)
        spot = int((reached <= draw * reached[-1]).sum())
        chosen.append(min(spot, len(flat) - 1))
        nearest = nearest.minimum(from_image(chosen[-1]))
    return chosen

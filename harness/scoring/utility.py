"""What is measured of victims: how much they learned, and how they separate what they see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.scoring.summary import Interval, proportion_interval, t_interval

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 1000
"""Images whose pairwise distances are measured, at most: a million pairs."""

PLAIN, ENCODED, RECOMPUTED = "plain", "encoded", "bn_recomputed"
"""Ways to ask a victim: as it is; through the defense's own inference, which encodes test images;
as it is, with BatchNorm statistics recomputed on clean public images."""


class Accuracy(BaseModel):
    """The share of test images named rightly, as a mean over trainings.

    The interval, at 95 %, is Wilson's of the test images for one training, and Student's t of the
    trainings for several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    interval: Interval | None
    trainings: tuple[float, ...]


class Utility(BaseModel):
    """Accuracies on `n` test images, by the way the victim is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """With the defense's own inference."""
    interval: Interval | None
    inference: str = PLAIN
    """What the defense's own inference is."""
    accuracies: dict[str, Accuracy] = {}
    """By inference: `plain`, `encoded`, `bn_recomputed`, as far as they apply."""
    chance: float
    """Of always naming the class most frequent in the test set."""
    n: int
    reference_accuracy: float | None = None
    """Of the same victim trained as long on unprotected images, asked plainly."""
    reference_interval: Interval | None = None
    reference_accuracies: dict[str, Accuracy] = {}

    @property
    def own_first(self) -> list[tuple[str, Accuracy]]:
        """Accuracies by inference, the defense's own before the others, whatever JSON sorted."""
        order = {PLAIN: 0, ENCODED: 1, RECOMPUTED: 2} | {self.inference: -1}
        return sorted(self.accuracies.items(), key=lambda item: order.get(item[0], len(order)))


class Right(BaseModel):
    """What one trained victim got right: counts out of `n`, by the way it was asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inference: str
    counts: dict[str, int]
    chance: float
    n: int


def summed_up(own: Sequence[Right], reference: Sequence[Right]) -> Utility:
    """One utility of a victim's trainings, beside those on unprotected images."""
    first, accuracies, unprotected = own[0], _accuracies(own), _accuracies(reference)
    return Utility(
        accuracy=accuracies[first.inference].mean,
        interval=accuracies[first.inference].interval,
        inference=first.inference,
        accuracies=accuracies,
        chance=first.chance,
        n=first.n,
        reference_accuracy=unprotected[PLAIN].mean,
        reference_interval=unprotected[PLAIN].interval,
        reference_accuracies=unprotected,
    )


def _accuracies(trainings: Sequence[Right]) -> dict[str, Accuracy]:
    found = {}
    for way, hits in trainings[0].counts.items():
        shares = tuple(right.counts[way] / right.n for right in trainings)
        alone = len(shares) == 1
        interval = proportion_interval(hits, trainings[0].n) if alone else t_interval(shares)
        mean = sum(shares) / len(shares)
        found[way] = Accuracy(mean=mean, interval=interval, trainings=shares)
    return found


def separability(hidden: Tensor, labels: Tensor) -> dict[str, float]:
    """Minimum, mean and maximum pairwise distance, within and across classes.

    That is what MixCon and UniCon squeeze. `hidden` [n, ...] is h(x), brought to length one as in
    MixCon's loss (its footnote 3), so that networks compare; `labels` [n]. A kind of pair that
    does not occur is left out.
    """
    import torch

    rows = hidden[:LARGEST].flatten(1).double()
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    first, second = torch.triu_indices(len(rows), len(rows), offset=1)
    exact = "donot_use_mm_for_euclid_dist"  # products would round coincident points apart
    distances = torch.cdist(rows, rows, compute_mode=exact)[first, second]
    same = labels[:LARGEST][first] == labels[:LARGEST][second]
    kinds = {"within": distances[same], "across": distances[~same]}
    return {
        f"separability.{kind}.{name}": float(value)
        for kind, found in kinds.items()
        if len(found)
        for name, value in (("min", found.min()), ("mean", found.mean()), ("max", found.max()))
    }

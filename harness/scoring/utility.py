"""What is measured of learners and victims: how much they learned, and how they separate images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict

from harness.scoring.summary import Interval, share_interval

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

LARGEST = 1000
"""Images whose pairwise distances are measured, at most: a million pairs."""

PLAIN, ENCODED, RECOMPUTED = "plain", "encoded", "bn_recomputed"
"""Ways to ask a victim: as it is; through the defense's own inference, which encodes test images;
as it is, with BatchNorm statistics recomputed on clean public images."""


class Accuracy(BaseModel):
    """The share of test images named rightly, as a mean over trainings.

    The interval, at 95 %, is Wilson's of the test images for one training. For several, it also
    holds how far trainings differ: see `share_interval`. Of a protected release each training had
    a draw of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    interval: Interval | None
    trainings: tuple[float, ...]

    @classmethod
    def of(cls, shares: Sequence[float], n: int) -> Accuracy:
        """Of the share of `n` images that each training named rightly."""
        mean = sum(shares) / len(shares)
        return cls(mean=mean, interval=share_interval(shares, n), trainings=tuple(shares))


class Utility(BaseModel):
    """Accuracies on `n` test images.

    What leaves as encodings meets several learners: `accuracies` are by learner, and that of the
    one counts that was best on as many other test images (`validation`). What the owner trains
    itself is one victim: `accuracies` are by the way it is asked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """Of the chosen learner; of a victim with the defense's own inference."""
    interval: Interval | None
    inference: str = PLAIN
    """The chosen learner; of a victim, what the defense's own inference is."""
    accuracies: dict[str, Accuracy] = {}
    """By learner; or by inference, `plain`, `encoded`, `bn_recomputed`, as far as they apply."""
    validation: dict[str, float] = {}
    """By learner, the accuracy that it was chosen by; empty for a victim."""
    left_out: dict[str, str] = {}
    """Learners that have no accuracy, with the reason."""
    chance: float
    """Of always naming the class most frequent among the `n` test images."""
    n: int
    reference_accuracy: float | None = None
    """From unprotected images: of the best of the same learners, or of the same victim."""
    reference_interval: Interval | None = None
    reference_inference: str = PLAIN
    """The learner chosen for unprotected images; a victim is asked plainly."""
    reference_accuracies: dict[str, Accuracy] = {}
    reference_validation: dict[str, float] = {}
    reference_left_out: dict[str, str] = {}

    @property
    def by_learner(self) -> bool:
        """Whether learners were compared."""
        return bool(self.validation)

    @property
    def by_own_inference(self) -> dict[str, Accuracy]:
        """Accuracies of whoever asks as the defense would be asked, whatever the options."""
        return {n: e for n, e in self.accuracies.items() if n.partition("[")[0] == ENCODED}

    @property
    def at_chance(self) -> bool:
        """Whether what counts is not surely above chance: the strongest learner found nothing."""
        low = self.interval[0] if self.interval else self.accuracy
        return low <= self.chance

    @property
    def own_first(self) -> list[tuple[str, Accuracy]]:
        """Accuracies, what counts before the others, whatever JSON sorted; learners by accuracy."""
        order = {PLAIN: 0, ENCODED: 1, RECOMPUTED: 2} | {self.inference: -1}

        def place(item: tuple[str, Accuracy]) -> tuple[float, float]:
            name, accuracy = item
            return order.get(name, len(order)), -accuracy.mean

        return sorted(self.accuracies.items(), key=place)


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
    first = trainings[0]
    return {
        way: Accuracy.of([right.counts[way] / right.n for right in trainings], first.n)
        for way in first.counts
    }


class Tried(BaseModel):
    """One learner's trainings: the shares it named rightly of two halves of the test images.

    It is chosen by one half, and what is reported is of the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    validation: tuple[float, ...]
    reported: tuple[float, ...]

    @property
    def standing(self) -> float:
        """What it is chosen by."""
        return sum(self.validation) / len(self.validation)


def best_of(
    learners: Mapping[str, Tried],
    reference: Mapping[str, Tried],
    *,
    chance: float,
    n: int,
    left_out: Mapping[str, str],
    reference_left_out: Mapping[str, str],
) -> Utility:
    """The utility of a release that these learners learned from; of equals, the first counts.

    `reference` is what the same learners made of unprotected images, as far as they had a use for
    them. Both are chosen on other images than the `n` that are reported.
    """
    own = {name: Accuracy.of(tried.reported, n) for name, tried in learners.items()}
    plain = {name: Accuracy.of(tried.reported, n) for name, tried in reference.items()}
    chosen = _chosen(learners)
    unprotected: dict[str, Any] = {}
    if reference:
        bare = _chosen(reference)
        unprotected = {
            "reference_accuracy": plain[bare].mean,
            "reference_interval": plain[bare].interval,
            "reference_inference": bare,
            "reference_accuracies": plain,
            "reference_validation": {n: tried.standing for n, tried in reference.items()},
        }
    return Utility(
        accuracy=own[chosen].mean,
        interval=own[chosen].interval,
        inference=chosen,
        accuracies=own,
        validation={name: tried.standing for name, tried in learners.items()},
        left_out=dict(left_out),
        reference_left_out=dict(reference_left_out),
        chance=chance,
        n=n,
        **unprotected,
    )


def together(several: Sequence[Utility]) -> Utility:
    """One utility of learners that were tried apart, on the same test images; the best one counts.

    A learner that was tried in several counts by that with most trainings, of equals by the first.
    Of a victim, the first counts.
    """
    first = several[0]
    several = sorted(several, key=lambda each: -_most(each.accuracies))
    if not any(each.validation.keys() - first.validation.keys() for each in several):
        return first
    own = _first_of(u.accuracies for u in several)
    validation = _first_of(u.validation for u in several)
    best = max(validation, key=validation.__getitem__)
    left_out = _first_of(u.left_out for u in several)
    joined = {
        "accuracy": own[best].mean,
        "interval": own[best].interval,
        "inference": best,
        "accuracies": own,
        "validation": validation,
        "left_out": {name: why for name, why in left_out.items() if name not in own},
    }
    assert all((each.n, each.chance) == (first.n, first.chance) for each in several)
    several = sorted(several, key=lambda each: -_most(each.reference_accuracies))
    plain = _first_of(u.reference_accuracies for u in several)
    if tried := _first_of(u.reference_validation for u in several):
        bare = max(tried, key=tried.__getitem__)
        joined |= {
            "reference_accuracy": plain[bare].mean,
            "reference_interval": plain[bare].interval,
            "reference_inference": bare,
            "reference_accuracies": plain,
            "reference_validation": tried,
            "reference_left_out": {
                name: why
                for name, why in _first_of(u.reference_left_out for u in several).items()
                if name not in plain
            },
        }
    return first.model_copy(update=joined)


def _most(accuracies: Mapping[str, Accuracy]) -> int:
    return max((len(each.trainings) for each in accuracies.values()), default=0)


def _first_of(several: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """By name, what the first says that has it."""
    found: dict[str, Value] = {}
    for each in several:
        for name, value in each.items():
            found.setdefault(name, value)
    return found


def _chosen(learners: Mapping[str, Tried]) -> str:
    return max(learners, key=lambda name: learners[name].standing)


def checked_logits(logits: Tensor | None, images: int, classes: int) -> Tensor:
    """These as float32; ValueError unless they are floats, finite, one for each image and class."""
    from torch import Tensor

    wanted = f"[{images}, {classes}] floats"
    if not isinstance(logits, Tensor):
        raise ValueError(f"logits are {type(logits).__name__}; wanted {wanted}")
    if logits.shape != (images, classes) or not logits.is_floating_point():
        kind = str(logits.dtype).removeprefix("torch.")
        raise ValueError(f"logits are {list(logits.shape)} {kind}; wanted {wanted}")
    logits = logits.float()
    if not logits.is_meta and not bool(logits.isfinite().all()):
        raise ValueError("logits hold NaN or infinite values")
    return logits


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

"""Checks of metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import AssetFolder, Metric, MetricSpec, Samples, Scene
from harness.asking.registry import registry
from harness.testing.datasets import CASES, Kit, KitConfig
from harness.testing.subject import Subject, Unanswered, Violation
from harness.testing.watch import forgetful, same, unmoved, untouched

CPU = torch.device("cpu")
SLACK = 1e-6


class Scorer:
    """A metric with what it knows of one of the kit's collections, and the truth to score."""

    def __init__(self, subject: Subject, case: str = "colour") -> None:
        held = Kit(KitConfig.model_validate({"case": case})).load(AssetFolder({}))
        private = CASES[case].private
        own, public = held.train[:private].unit(), held.train[private:]
        scene = Scene(
            scale=held.scale,
            device=CPU,
            assets=subject.assets,
            decoys=held.test.unit().images,
            public=Samples(public.images, public.labels),
            labels=own.labels,
            classes=len(held.classes),
        )
        self.truth = own.images
        self.metric: Metric = registry().build("metrics", subject.name, scene)
        reason = self.metric.unavailable(tuple(self.truth.shape[1:]))
        if reason:
            raise Unanswered(reason)

    def score(self, images: Tensor) -> Tensor:
        """Scores of images against the truth."""
        values = self.metric.score(images, self.truth).double()
        if values.shape != (len(self.truth),):
            raise Violation(f"score returned {list(values.shape)}; wanted [{len(self.truth)}]")
        if bool(values.isinf().any()):
            raise Violation("score returned infinite values")
        return values

    @property
    def noise(self) -> Tensor:
        """Noise in place of the truth."""
        return torch.rand(self.truth.shape, generator=torch.Generator().manual_seed(9))


def _of_noise(subject: Subject, case: str = "colour") -> Tensor:
    scorer = Scorer(subject, case)
    return scorer.score(scorer.noise)


def scores(subject: Subject) -> str:
    """A number for each image; both sides stay as they were."""
    scorer = Scorer(subject)
    images = scorer.noise
    with untouched(images=images, truth=scorer.truth):
        values = scorer.score(images)
    return f"noise scores {values.nanmean():.4g} {subject.spec.unit}".strip()


def knows_the_truth(subject: Subject) -> str:
    """The truth itself leaks more than noise."""
    scorer = Scorer(subject)
    spec: MetricSpec = subject.spec
    truth, noise = (float(scorer.score(x).nanmean()) for x in (scorer.truth, scorer.noise))
    better = truth > noise if spec.leaks_more == "higher" else truth < noise
    if not better:
        said = f"though {spec.leaks_more} leaks more"
        raise Violation(f"the truth scores {truth:.4g} and noise {noise:.4g}, {said}")
    return f"the truth scores {truth:.4g}, noise {noise:.4g}"


def in_range(subject: Subject) -> str:
    """Scores are within the declared range."""
    scorer = Scorer(subject)
    low, high = subject.spec.range
    for images in (scorer.truth, scorer.noise, torch.zeros_like(scorer.truth)):
        values = scorer.score(images)
        values = values[~values.isnan()]
        if bool((values < low - SLACK).any()) or bool((values > high + SLACK).any()):
            raise Violation(
                f"scores from {values.min():.4g} to {values.max():.4g}, beyond {low:g}..{high:g}"
            )
    return f"within {low:g}..{high:g}"


def deterministic(subject: Subject) -> str:
    """The same pair has the same score."""
    if not same(_of_noise(subject), _of_noise(subject)):
        raise Violation("the same images score otherwise the second time")
    return "the same images score the same"


def leaves_the_world_alone(subject: Subject) -> str:
    """No global state is moved."""
    return unmoved(lambda: _of_noise(subject))


def copes_with(subject: Subject, case: str) -> str:
    """Data out of the ordinary is scored, or `unavailable` says why not."""
    values = _of_noise(subject, case)
    undefined = int(values.isnan().sum())
    return f"{len(values) - undefined} of {len(values)} images have a score"


def forgets(subject: Subject) -> str:
    """Scores leave nothing behind."""
    scorer = Scorer(subject)
    return forgetful(lambda _: scorer.score(scorer.noise))

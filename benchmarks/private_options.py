"""The options of private releases, by what is learned of public images alone.

    python benchmarks/private_options.py --dataset fashion --out benchmarks/private_options.json

Public images are parted into private, public and test ones by chance, a release is made of the
first, learned from, and asked of the last; the mean of several draws, with the deviation of that
mean. No private or test image of a board is looked at. Less than a board's images are here: to them
a budget of 8 is as much noise as one of 2 is to four times as many.

`dpmeans`: how far public images whiten, and where rows are clipped. `dpmix`: images a row, in units
of mu sqrt(n). `dpsgd`: how a logistic regression is trained. `--study` runs one of them alone;
`--out` adds to a file what was asked, by dataset and space. Needs `harness assets fetch
fashion`, or `cifar10 resnet50-imagenet` with `--space resnet50`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from harness.api import Budget, Encoder, Lesson, Samples, Scale, Statistics, Stream
from harness.api.plugins import silent
from harness.rng import public_stream
from harness.running.release import Stack
from harness.running.run import Run
from harness.running.samples import standardised
from harness.running.training import fit, fresh
from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.defenses.dpmeans.sums import Dpmeans
from harness_plugins.defenses.dpmix import DpmixConfig
from harness_plugins.defenses.dpmix.mixing import Dpmix
from harness_plugins.defenses.dpsgd import DpSgdConfig
from harness_plugins.defenses.dpsgd.defense import DpSgd
from harness_plugins.learners.classmeans import ClassMeansConfig
from harness_plugins.learners.classmeans.learner import ClassMeans
from harness_plugins.learners.noisymeans.learner import discriminant
from harness_plugins.privacy.gaussian import mu_of
from harness_plugins.victims.logistic import Logistic, LogisticConfig

BUDGETS = (0.5, 2.0, 8.0, 32.0)
WHITEN, CLIP = (0.0, 0.25, 0.5, 0.75, 1.0), (0.25, 0.5, 1.0)
STEPS, EPOCHS, RATES = (0.1, 0.5, 1.0), (10, 30), (3e-3, 1e-2, 3e-2)
MIXED = (0.25, 0.5, 1.0, 2.0, 4.0)
SHARES = (0.2, 0.6)
"""Of the images: public, and private; the others are asked about."""


@dataclass(frozen=True)
class Parts:
    """Public images in three."""

    private: Samples
    public: Samples
    test: Samples
    scale: Scale
    classes: int

    @classmethod
    def of(cls, images: Samples, scale: Scale, classes: int, stream: Stream) -> Parts:
        """Chance says who is where."""
        order, n = stream.permutation(len(images)), len(images)
        first, second = round(SHARES[0] * n), round((SHARES[0] + SHARES[1]) * n)
        cuts = (order[first:second], order[:first], order[second:])
        return cls(*(images[cut] for cut in cuts), scale, classes)


def main() -> None:
    options = _options()
    images, scale, classes = _public(options)
    found: dict[str, Any] = {"images": len(images), "draws": options.draws}
    for study in (dpmeans, dpmix, dpsgd):
        if options.study not in ("all", study.__name__):
            continue
        told = found[study.__name__] = {}
        for name, accuracy in study(images, scale, classes, options.draws):
            told[name] = accuracy
            print(f"{study.__name__} {name:<28} {accuracy[0]:.4f} ± {accuracy[1]:.4f}", flush=True)
    if options.out:
        held = json.loads(options.out.read_text()) if options.out.exists() else {}
        held.setdefault(f"{options.dataset} {options.space}", {}).update(found)
        options.out.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="fashion-mini")
    parser.add_argument("--space", default="pixels")
    parser.add_argument("--public-size", type=int, default=5000)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--study", default="all", choices=("all", "dpmeans", "dpmix", "dpsgd"))
    parser.add_argument("--out", type=Path, help="Where to write the same as JSON.")
    return parser.parse_args()


def _public(options: argparse.Namespace) -> tuple[Samples, Scale, int]:
    """Standardised, with their labels."""
    sizes = {"private_size": 100, "public_size": options.public_size, "test_size": 100}
    asked = {"dataset": options.dataset, "space": options.space, "only": "utility", **sizes}
    splits = Run.open(asked).splits
    return standardised(splits.public, splits.scale), splits.scale, len(splits.classes)


Told = Iterator[tuple[str, tuple[float, float]]]


def dpmeans(images: Samples, scale: Scale, classes: int, draws: int) -> Told:
    """By budget, power of the variance that divides, and clipping norm."""
    for epsilon in BUDGETS:
        for whiten in WHITEN:
            for clip in CLIP:
                defense = Dpmeans(DpmeansConfig(epsilon=epsilon, whiten=whiten, clip=clip))
                yield (
                    f"epsilon={epsilon:g},whiten={whiten:g},clip={clip:g}",
                    _mean(images, scale, classes, draws, lambda *a, d=defense: summed(d, *a)),
                )


def dpmix(images: Samples, scale: Scale, classes: int, draws: int) -> Told:
    """By budget, and images a row over mu sqrt(n)."""
    for epsilon in BUDGETS[1:]:
        n = round(SHARES[1] * len(images))
        usual = mu_of(epsilon, DpmixConfig().delta) * math.sqrt(n)
        for times in MIXED:
            m = max(1, min(round(times * usual), n // 2))
            defense = Dpmix(DpmixConfig(epsilon=epsilon, m=m))
            yield (
                f"epsilon={epsilon:g},m={times:g}",
                _mean(images, scale, classes, draws, lambda *a, d=defense: mixed(d, *a)),
            )


def dpsgd(images: Samples, scale: Scale, classes: int, draws: int) -> Told:
    """By budget, share of the images in a step, epochs and learning rate."""
    for epsilon in BUDGETS[1:3]:
        for share, epochs, rate in product(STEPS, EPOCHS, RATES):
            yield (
                f"epsilon={epsilon:g},batch={share:g},epochs={epochs},lr={rate:g}",
                _mean(
                    images,
                    scale,
                    classes,
                    draws,
                    lambda *a, e=epsilon, s=share, n=epochs, r=rate: descended(e, s, n, r, *a),
                ),
            )


Logits = Callable[[Tensor], Tensor]


def _mean(
    images: Samples,
    scale: Scale,
    classes: int,
    draws: int,
    learned: Callable[[Parts, Stream], Logits],
) -> tuple[float, float]:
    """Accuracy, and the deviation of its mean."""
    found = []
    for draw in range(draws):
        stream = public_stream(0).stream(what="options of private releases", draw=draw)
        parts = Parts.of(images, scale, classes, stream.stream(what="parts"))
        right = learned(parts, stream)(parts.test.images).argmax(1) == parts.test.labels
        found.append(right.double().mean())
    every = torch.stack(found)
    return round(float(every.mean()), 4), round(float(every.std()) / math.sqrt(draws), 4)


def summed(defense: Dpmeans, parts: Parts, stream: Stream) -> Logits:
    """From class sums."""
    made = defense.measure(parts.private, parts.public, parts.classes, stream)
    told = Statistics(
        made.sums, made.counts, made.noise, made.count_noise, made.basis, defense.embed
    )
    return discriminant(told, told.embed(parts.public.images)).logits


def mixed(defense: Dpmix, parts: Parts, stream: Stream) -> Logits:
    """From noisy means of random images."""
    made = defense.encode(parts.private, parts.public, stream)
    settled = Dpmix(defense.config.model_copy(update=dict(made.resolved)))
    lesson = Lesson(
        release=Once(made.images, made.labels),
        public=Samples(parts.public.images, torch.zeros_like(parts.public.labels)),
        law=Encoder("dpmix", settled.config, settled.encode),
        scale=parts.scale,
        shape=tuple(parts.public.images.shape[1:]),
        classes=parts.classes,
        device=torch.device("cpu"),
        rng=stream.stream(what="lesson"),
        victim=None,  # type: ignore[arg-type]  # Class means train no network.
    )
    learner = ClassMeans(ClassMeansConfig())
    return learner.learn(lesson, Budget(600.0, 8000, 1), silent).logits


def descended(
    epsilon: float, share: float, epochs: int, rate: float, parts: Parts, stream: Stream
) -> Logits:
    """By private gradients."""
    batch = max(1, round(share * len(parts.private)))
    recipe = LogisticConfig(epochs=epochs, batch_size=batch, optimizer="adam", lr=rate)
    victim, device = Logistic(recipe), torch.device("cpu")
    shape = tuple(parts.private.images.shape[1:])
    model = fresh(victim, shape, parts.classes, stream, device=device)
    labels = one_hot(parts.private.labels, parts.classes).float()
    stack = Stack(training=(("dpsgd", DpSgd(DpSgdConfig(epsilon=epsilon))),))
    fit(model, parts.private.images[None], labels[None], recipe, stream, device=device, stack=stack)
    model.eval()
    return model


@dataclass(frozen=True)
class Once:
    """Encodings of one round."""

    images: Tensor
    labels: Tensor
    rounds: int = 1

    @property
    def rows(self) -> int:
        """Of one round."""
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return tuple(self.images.shape[1:])

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A thousand at a time."""
        yield from zip(self.images.split(1000), self.labels.split(1000), strict=True)


if __name__ == "__main__":
    main()

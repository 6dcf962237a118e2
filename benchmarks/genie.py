"""What a genie gets back of singularized mixup: an attacker who is told every partner of an image.

    python benchmarks/genie.py --dataset cifar10 --space resnet50 --out benchmarks/genie.json

With the partners known, an image is seen through white noise alone: over all rounds, 1/v is the
sum of w²/((1-w)²s²) where it comes first and of 1/s² where it comes second, s² the noise a value.
For Gaussian images with the covariance of public ones, the posterior mean then is best; what lies
beyond the directions of the public images counts as alike in all. It is applied to private images
here, with Gaussian noise, and its error counted in decibels over that of the public mean (both
pooled): once over all values, once over what the first principal components of public images hold
of an image, where most of its energy is and little of the noise. It is no attack that anybody could
run, and no ceiling: its prior is Gaussian.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from harness.api import Samples, Stream
from harness.rng import public_stream
from harness.running.run import Run
from harness.running.samples import standardised
from harness.store.provenance import code_state
from harness_plugins.defenses.singmix.calibration import Spread, measure_spread
from harness_plugins.defenses.singmix.encode import draw_weights

TAUS = (1.0, 1e-2, 1e-4, 1e-6)
ALPHA = 0.65


def main() -> None:
    """Print a line for each tau, a column for each number of rounds."""
    options = _options()
    private, public = _images(options)
    spread = measure_spread(private, None)
    prior = Prior.of(public.images)
    parts = {"whole": prior, f"first {options.components}": prior.first(options.components)}
    print(f"{'tau':>8}" + "".join(f"{f'T={rounds}':>16}" for rounds in options.rounds))
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for tau in TAUS:
        for rounds in options.rounds:
            seen = _seen_through(spread, tau, rounds, options.targets)
            for name, part in parts.items():
                gain = round(_gain(private.images, part, seen), 2)
                found[name][f"{tau:g}"][str(rounds)] = gain
        columns = ([found[n][f"{tau:g}"][str(t)] for n in parts] for t in options.rounds)
        print(f"{tau:>8g}" + "".join(f"{a:>8.2f}{b:>8.2f}" for a, b in columns), flush=True)
    if options.out:
        told = {"options": _told(options), **found}
        options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _told(options: argparse.Namespace) -> dict[str, object]:
    """What was asked, and of which code."""
    asked = {name: value for name, value in vars(options).items() if name != "out"}
    return {**asked, "alpha": ALPHA, "commit": code_state()["commit"]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="fashion-mini")
    parser.add_argument("--space", default="pixels")
    parser.add_argument("--public-size", type=int, default=4000)
    parser.add_argument("--targets", type=int, default=500)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 20, 200])
    parser.add_argument("--components", type=int, default=1024)
    parser.add_argument("--out", type=Path, help="Where to write the same as JSON.")
    return parser.parse_args()


def _images(options: argparse.Namespace) -> tuple[Samples, Samples]:
    """Private and public images, standardised."""
    asked = {
        "dataset": options.dataset,
        "space": options.space,
        "private_size": options.targets,
        "public_size": options.public_size,
        "test_size": 100,
        "only": "utility",
    }
    splits = Run.open(asked).splits
    return standardised(splits.private, splits.scale), standardised(splits.public, splits.scale)


@dataclass(frozen=True)
class Prior:
    """Gaussian images: `mean` [d], directions [d, m] with their variances [m], `rest` beyond them.

    Variances are those of public images that did not choose the directions. Without a `rest`, what
    lies beyond them does not count.
    """

    mean: Tensor
    basis: Tensor
    variances: Tensor
    rest: float | None

    @classmethod
    def of(cls, images: Tensor) -> Prior:
        """Of public images [n, ...]: a tenth of them tells the variances."""
        rows = images.flatten(1)
        seen, held = rows[len(rows) // 10 :], rows[: len(rows) // 10]
        mean = seen.mean(0)
        basis = _directions(seen - mean)
        inside = (held - mean) @ basis
        outside = float((held - mean).square().sum() - inside.square().sum()) / len(held)
        beyond = rows.shape[1] - basis.shape[1]
        return cls(mean, basis, inside.square().mean(0), outside / beyond if beyond else 0.0)

    def first(self, components: int) -> Prior:
        """The widest directions alone."""
        kept = self.variances.argsort(descending=True)[:components]
        return Prior(self.mean, self.basis[:, kept], self.variances[kept], None)


def _directions(centred: Tensor) -> Tensor:
    """Principal directions [d, m] of rows [n, d]; m is d, or below n where rows are few."""
    n, d = centred.shape
    if n > d:
        return torch.linalg.eigh(centred.T @ centred / n)[1]
    variances, mixed = torch.linalg.eigh(centred @ centred.T / n)
    kept = variances > variances.max() * 1e-6
    return centred.T @ (mixed[:, kept] / (variances[kept] * n).sqrt())


def _seen_through(spread: Spread, tau: float, rounds: int, n: int) -> Tensor:
    """[n] variances of the noise that each image is seen through; of a value, in units of 1/d.

    Its partner in each round is another image's: weights of first and second place are drawn apart.
    """
    stream = public_stream(0).stream(what="genie", rounds=rounds)
    power = spread.radius(tau, ALPHA) ** 2
    inverse = sum(_one_round(stream.stream(round=t), n) for t in range(rounds))
    assert isinstance(inverse, Tensor)
    return power / inverse


def _one_round(stream: Stream, n: int) -> Tensor:
    weights = draw_weights(n, ALPHA, stream).double()
    first = (weights[:, 0] / weights[:, 1]).square()
    return first + 1.0


def _gain(images: Tensor, prior: Prior, seen: Tensor) -> float:
    """Decibels that the posterior mean of `images` is closer than the public mean, pooled."""
    rows = images.flatten(1) - prior.mean
    noise = (seen / rows.shape[1]).float().view(-1, 1)
    inside = rows @ prior.basis
    drawn = torch.randn(inside.shape, generator=public_stream(0).stream(what="noise").generator())
    share = prior.variances / (prior.variances + noise)
    wrong = ((inside + noise.sqrt() * drawn) * share - inside).square().sum(1)
    if prior.rest is None:
        return 10 * math.log10(float(inside.square().sum()) / float(wrong.sum()))
    outside = rows.square().sum(1) - inside.square().sum(1)
    kept = (prior.rest / (prior.rest + noise)).flatten()
    beyond = rows.shape[1] - prior.basis.shape[1]
    wrong += (1 - kept).square() * outside + kept.square() * noise.flatten() * beyond
    return 10 * math.log10(float(rows.square().sum()) / float(wrong.sum()))


if __name__ == "__main__":
    main()

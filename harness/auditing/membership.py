"""Membership: how a model that was trained on the release takes the two images of each coin.

Carlini, Chien, Nasr, Song, Terzis and Tramèr, Membership Inference Attacks From First Principles,
2022 (LiRA): the confidence in the true class is compared with that of shadow models, each trained
alike on images of the guesser's own. The model is a learner's on what leaves; under a defense of
training or of gradients it is the owner's victim, whose weights then are what leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.api import Samples, UsageError
from harness.auditing.coins import Coins, joined, released
from harness.rng import public_stream
from harness.running.learn import LearnStage
from harness.running.release import victim_under
from harness.running.run import Run
from harness.running.samples import standardised
from harness.running.stage import plugin_boundary
from harness.running.train import TrainStage

RESERVED = 2
"""Public images for each private one that shadows draw theirs from: each is in half of them."""
SHADOWS = 16


def by_loss(base: Run, coins: Coins) -> tuple[Run, Tensor]:
    """[coins] how much smaller the loss at the second image is."""
    run = released(base, coins.chosen, coins.pairs, f"{len(coins)} chosen")
    labels = coins.pairs.labels
    scores = logits(run).log_softmax(1).gather(1, labels.view(-1, 1)).view(-1, 2)
    return run, scores[:, 1] - scores[:, 0]


def by_lira(base: Run, coins: Coins) -> tuple[Run, Tensor]:
    """[coins] log-likelihood ratio of either image being in, each against its own shadows.

    UsageError with fewer public images than shadows take.
    """
    reserved = RESERVED * len(coins)
    pool = base.splits.public
    if len(pool) < reserved + 2:
        raise UsageError(
            f"LiRA's shadows take {reserved} public images for {len(coins)} coins, and leave the "
            f"others to the defense; there are {len(pool)}: raise --public-size or ask fewer coins."
        )
    what = f"{len(coins)} chosen"
    run = released(base, coins.chosen, coins.pairs, what, reserved)
    own = confidence(logits(run), coins.pairs.labels)
    shadows = [_shadow(base, coins, pool[:reserved], i) for i in range(SHADOWS)]
    odds = fitted(shadows, len(own)).odds(own)
    return run, odds


def _shadow(base: Run, coins: Coins, pool: Samples, number: int) -> Shadow:
    """A model like the owner's, of half of the reserved images."""
    stream = public_stream(base.cell.request.seed).stream(stage="audit", shadow=number)
    members = stream.permutation(len(pool))[: len(coins)]
    asked = joined(coins.pairs, pool)
    run = released(base, pool[members], asked, f"shadow {number}", len(pool))
    held = torch.zeros(len(pool), dtype=torch.bool)
    held[members] = True
    return Shadow(confidence(logits(run), asked.labels), held)


@dataclass(frozen=True)
class Shadow:
    """Confidence [asked + reserved] of a shadow, and which of the reserved images it `held`."""

    confidence: Tensor
    held: Tensor


@dataclass(frozen=True)
class Fit:
    """Normal laws of confidence: out, about each asked image's own `centre`; in, `shift` beyond."""

    centre: Tensor
    shift: float
    spread_in: float
    spread_out: float

    def odds(self, own: Tensor) -> Tensor:
        """[coins] of confidence [2 coins], coin by coin."""
        off = own - self.centre
        inside, outside = (
            -((off - shift) ** 2) / (2 * spread**2)
            for shift, spread in ((self.shift, self.spread_in), (0.0, self.spread_out))
        )
        ratio = (inside - outside).view(-1, 2)
        return ratio[:, 1] - ratio[:, 0]


def fitted(shadows: list[Shadow], asked: int) -> Fit:
    """By shadows that hold none of the first `asked` images, and half of the others each.

    An image's mean confidence out is its own; deviations, and what being in adds, are pooled over
    the reserved images, as few shadows tell little of one image.
    """
    every = torch.stack([shadow.confidence for shadow in shadows]).double()
    held = torch.stack([shadow.held for shadow in shadows])
    seen, reserved = every[:, :asked], every[:, asked:]
    out = (~held).sum(0)
    several = (out > 1) & (out < len(shadows))
    reserved, held, out = reserved[:, several], held[:, several], out[several]
    means = (reserved * ~held).sum(0) / out
    off = reserved - means
    shift = off[held].mean()
    within = off[~held].square().sum() / (out - 1).sum()
    return Fit(
        centre=seen.mean(0),
        shift=float(shift),
        spread_in=_positive((off[held] - shift).square().mean().sqrt()),
        spread_out=_positive((within * (1 + 1 / len(shadows))).sqrt()),
    )


def _positive(deviation: Tensor) -> float:
    return max(float(deviation), 1e-12)


def confidence(values: Tensor, labels: Tensor) -> Tensor:
    """[n] float64 log p / (1 − p) of the true class, of logits [n, classes]: LiRA's scaling."""
    wide = values.double()
    own = wide.gather(1, labels.view(-1, 1))[:, 0]
    return own - wide.scatter(1, labels.view(-1, 1), -torch.inf).logsumexp(1)


def logits(run: Run) -> Tensor:
    """[asked, classes] that the run's one model says of the images it is asked about."""
    if run.cell.learns:
        (stage, *_) = LearnStage.own(run.cell)
        return run(stage).logits
    return _of_victim(run)


def _of_victim(run: Run) -> Tensor:
    """Of the owner's victim: its weights are those that its training stored."""
    from harness.running.training import outputs
    from harness.sandbox.rebuilding import restore

    stage, splits = TrainStage.own(run.cell)[0], run.splits
    run(stage)
    weights = run.store.read(stage.name, stage.key).tensors
    resolved = victim_under(run, run.cell.defenses)
    with plugin_boundary(resolved.name):
        victim = run.build("victims", resolved.spec, resolved.config)
        model = restore(victim, splits.shape, len(splits.classes), weights)
        asked = standardised(splits.test, splits.scale).images
        return outputs(model, asked, run.device)

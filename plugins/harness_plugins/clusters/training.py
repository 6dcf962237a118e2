"""Learning which encodings hold an image in common, from public images encoded twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

from harness.api.training import descend
from harness_plugins.clusters.embedding import PairNetwork
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.training import schedule, snapshot
from harness_plugins.signs.exercise import Exercise, encode, hides_signs

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Progress, Samples, Stream, View

_EXAMS = 10  # how often held-out images have a word
_LOOK = 500
_EXAMINED = 100  # images in an exam


@dataclass(frozen=True)
class Lesson:
    """Two rounds of the same images, [b, *shape] each, and what their rows share [b, b]."""

    one: Tensor
    other: Tensor
    shared: Tensor


def learn(
    view: View,
    _budget: Budget,
    progress: Progress,
    *,
    pair_steps: int = 400,
    pair_batch: int = 192,
    pair_rate: float = 2e-3,
    pair_images: int = 50_000,
) -> Mapping[str, Tensor]:
    """The preparation `pair-embedding`.

    The weights that told held-out public images apart best are kept.
    """
    samples = view.public[:pair_images]
    held = held_out(len(samples))
    rng = view.rng.stream(use="pairs")
    look = encode(view, samples[:_LOOK], rng.stream(use="look"))
    hidden = hides_signs(look)
    seen = look.encodings.abs() if hidden else look.encodings
    centre, spread = seen.mean(0), seen.std().clamp(min=1e-12)
    teacher = _Teacher(view, hidden, centre, spread)
    network = PairNetwork(view.shape).to(view.device)
    exam = teacher.lesson(samples[:held], min(held, _EXAMINED), rng.stream(use="exam"))
    plan = _Plan(pair_steps, pair_batch, pair_rate)
    best = _train(network, teacher, samples[held:], exam, plan, rng, progress)
    return {**best.weights, "exam": best.auc, "centre": centre, "spread": spread}


@dataclass(frozen=True)
class _Plan:
    steps: int
    batch: int
    lr: float


@dataclass(frozen=True)
class _Best:
    weights: dict[str, Tensor]
    auc: Tensor


@dataclass(frozen=True)
class _Teacher:
    """Makes lessons under the owner's law."""

    view: View
    hidden: bool
    centre: Tensor
    spread: Tensor

    def lesson(self, samples: Samples, count: int, rng: Stream) -> Lesson:
        """Of `count` images, mixed with each other alone: every row shares with several."""
        chosen = samples[rng.permutation(len(samples))[:count].to(samples.labels.device)]
        one, other = (encode(self.view, chosen, rng.stream(turn=turn)) for turn in range(2))
        return Lesson(self._seen(one), self._seen(other), shared(one, other, len(chosen)))

    def _seen(self, work: Exercise) -> Tensor:
        seen = work.encodings.abs() if self.hidden else work.encodings
        return (seen - self.centre) / self.spread


def shared(one: Exercise, other: Exercise, n: int) -> Tensor:
    """[b, b]: by how much rows hold the same of `n` images, the smaller of both weights."""
    both = one.weights.new_zeros(len(one.weights), len(other.weights))
    for source, weight in zip(one.sources.T, one.weights.T, strict=True):
        held = source.masked_fill(source >= n, -1).view(-1, 1)
        for theirs, share in zip(other.sources.T, other.weights.T, strict=True):
            both += torch.minimum(weight.view(-1, 1), share) * (held == theirs)
    return both


def contrast(network: PairNetwork, lesson: Lesson) -> Tensor:
    """InfoNCE in both directions, [] nats: which rows of the other round share an image."""
    sharp = network.sharpness.exp().clamp(max=100)
    logits = sharp * (network(lesson.one) @ network(lesson.other).T)
    along = cross_entropy(logits, lesson.shared / lesson.shared.sum(1, keepdim=True))
    turned = lesson.shared.T
    return (along + cross_entropy(logits.T, turned / turned.sum(1, keepdim=True))) / 2


def _train(
    network: PairNetwork,
    teacher: _Teacher,
    samples: Samples,
    exam: Lesson,
    plan: _Plan,
    rng: Stream,
    progress: Progress,
) -> _Best:
    optimizer = torch.optim.AdamW(network.parameters(), lr=plan.lr, weight_decay=1e-2)
    scheduler = schedule(optimizer, plan.steps)
    every = max(1, plan.steps // _EXAMS)
    best = _Best(snapshot(network), auc(network, exam))
    steps = range(1, plan.steps + 1)
    losses = descend(
        network,
        optimizer,
        (teacher.lesson(samples, plan.batch, rng.stream(step=step)) for step in steps),
        partial(contrast, network),
        schedule=scheduler,
        longest=1.0,
        precision=teacher.view.precision,
    )
    for step, _ in zip(steps, losses, strict=True):
        if step % every == 0 or step == plan.steps:
            found = auc(network, exam)
            if found >= best.auc:
                best = _Best(snapshot(network), found)
            progress(step, plan.steps, f"pairs told apart: AUC {float(found):.3f}")
    return best


@torch.no_grad()
def auc(network: PairNetwork, lesson: Lesson) -> Tensor:
    """[] how often a row that shares an image is nearer than one that shares none."""
    from scipy.stats import rankdata

    network.eval()
    scores = (network(lesson.one) @ network(lesson.other).T).cpu()
    same = (lesson.shared > 0).cpu()
    ranks = torch.from_numpy(rankdata(scores.numpy(), axis=1))
    true = same.sum(1).double()
    false = same.shape[1] - true
    each = ((ranks * same).sum(1) - true * (true + 1) / 2) / (true * false)
    return each[(true > 0) & (false > 0)].mean().float()

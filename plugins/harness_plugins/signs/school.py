"""Training of a network that guesses signs; held-out images have the last word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import softplus

from harness_plugins.networks import training
from harness_plugins.networks.holdout import held_out

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, Samples, Stream
    from harness.api.precision import Precision
    from harness_plugins.signs.network import SignNetwork

    MakeLesson = Callable[[Samples, Stream], "Lesson"]
    Objective = Callable[[Tensor, "Lesson"], Tensor]

_BATCH = 64


@dataclass(frozen=True)
class Lesson:
    """What the network sees and is told of n samples, and the `truth` whose signs it learns.

    `seen` [n, *shape] are absolute values, `told` [n, v].
    """

    seen: Tensor
    told: Tensor
    truth: Tensor

    def __getitem__(self, index: Tensor) -> Lesson:
        return Lesson(self.seen[index], self.told[index], self.truth[index])


def parted(pool: Samples, most: int) -> tuple[Samples, Samples]:
    """At most so many images, parted into held-out ones and those that are trained on."""
    chosen = pool[:most]
    held = held_out(len(chosen))
    return chosen[:held], chosen[held:]


def cross_entropy(odds: Tensor, lesson: Lesson) -> Tensor:
    """Of the signs, each weighed by its square: what it would cost to get it wrong.

    Proper, so that tanh(odds) is the expected sign; unlike the squared error of |x| tanh(odds),
    it still teaches where the network is sure and wrong.
    """
    energy = lesson.truth.square()
    share = energy / energy.flatten(1).mean(1).clamp(min=1e-12).view(-1, 1, 1, 1)
    return (share * softplus(-2 * odds * lesson.truth.sign())).mean()


@torch.no_grad()
def right_signs(odds: Tensor, truth: Tensor) -> float:
    """Share of the signs that are right, of values that are not zero."""
    right = (odds * truth > 0).sum()
    return float(right / (truth != 0).sum().clamp(min=1))


@dataclass(frozen=True)
class School:
    """What is taught: samples under a law, by an objective, for `epochs` passes."""

    make: MakeLesson
    objective: Objective
    epochs: int
    lr: float
    precision: Precision

    def teach(
        self,
        network: SignNetwork,
        samples: Samples,
        held_out: Samples,
        rng: Stream,
        progress: Progress,
    ) -> dict[str, Tensor]:
        """The weights that served the held-out images best, as `training.snapshot` names them."""
        optimizer = torch.optim.Adam(network.parameters(), lr=self.lr)
        steps = self.epochs * training.steps_of_an_epoch(len(samples), _BATCH)
        scheduler = training.schedule(optimizer, steps)
        exam = self.make(held_out, rng.stream(use="exam"))
        kept, least = training.snapshot(network), self._error(network, exam)[0]
        for epoch in range(self.epochs):
            for lesson in self._lessons(samples, rng.stream(use="train", epoch=epoch)):
                self._pass(network, lesson, optimizer, scheduler)
            error, right = self._error(network, exam)
            if error < least:
                kept, least = training.snapshot(network), error
            progress(epoch + 1, self.epochs, f"{right:.1%} of the signs right")
        return kept

    def _lessons(self, samples: Samples, rng: Stream) -> Iterator[Lesson]:
        """Groups of images that meet in mixtures, encoded when their turn comes."""
        order = rng.permutation(len(samples)).to(samples.labels.device)
        for number, group in enumerate(training.groups(order)):
            yield self.make(samples[group], rng.stream(group=number))

    def _pass(
        self,
        network: SignNetwork,
        lesson: Lesson,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LambdaLR,
    ) -> None:
        def loss_of(index: Tensor) -> Tensor:
            part = lesson[index]
            return self.objective(network(part.seen, part.told), part)

        batches = torch.arange(len(lesson.seen), device=lesson.seen.device).split(_BATCH)
        training.train_epoch(
            network, optimizer, batches, loss_of, scheduler, precision=self.precision
        )

    @torch.no_grad()
    def _error(self, network: SignNetwork, exam: Lesson) -> tuple[float, float]:
        """Share of the energy that |x| tanh(odds) misses, and of the signs that are right."""
        network.eval()
        odds = network.odds(exam.seen, exam.told)
        missed = (exam.seen * odds.tanh() - exam.truth).square().sum()
        energy = exam.truth.square().sum().clamp(min=1e-12)
        return float(missed / energy), right_signs(odds, exam.truth)

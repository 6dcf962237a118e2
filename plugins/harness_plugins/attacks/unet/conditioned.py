"""The conditioned denoiser: what a linear attacker would say, corrected by a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Channel
from harness_plugins.attacks.unet.evidence import Evidence, inputs_of, weigh
from harness_plugins.attacks.unet.knowledge import Knowledge
from harness_plugins.attacks.unet.rows import (
    Rows,
    encode,
    exercise_rows,
    names_targets,
    released_rows,
)
from harness_plugins.networks import training
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.unet import Denoiser

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Progress, Samples, Stream, View
    from harness_plugins.attacks.unet import UNetConfig


def build(view: View, config: UNetConfig) -> Denoiser:
    """An untrained network for what this view will hold."""
    planes, vector = inputs_of(view.shape[0], view.classes, view.has(Channel.LABELS))
    network = Denoiser(planes, vector, view.shape[0], config.base).to(view.device)
    training.channels_last(network)
    return network


def learn(view: View, config: UNetConfig, budget: Budget, progress: Progress) -> dict[str, Tensor]:
    """Law, network and shares, from public images alone."""
    school = _School(view, config, budget)
    best = school.examine(0.0, -torch.inf)
    for epoch in range(config.epochs):
        school.teach(epoch)
        best = school.examine(*best)
        progress(epoch + 1, config.epochs, f"held-out SNR {best[1]:.2f} dB")
    return school.kept


def estimate(
    view: View, config: UNetConfig, budget: Budget, prepared: Mapping[str, Tensor]
) -> Tensor:
    """[n, *view.shape]: each image of all rounds, or of each row where none is named."""
    known, network = Knowledge.of(view, budget, prepared), build(view, config)
    training.restore(network, dict(prepared))
    rounds = len(view.encodings) if names_targets(view) else 1
    evidence = weigh(known, (released_rows(view, known.subspace, turn) for turn in range(rounds)))
    linear, net = prepared["shares"].tolist()
    start = evidence.mean + linear * evidence.linear
    return view.scale.clamp(start + net * _corrections(network, evidence))


def _parted(view: View, config: UNetConfig) -> tuple[Samples, Samples]:
    """Public images that are held out, and those that are trained on."""
    pool = view.public[: config.images]
    held = held_out(len(pool))
    return pool[:held], pool[held:]


def _corrections(network: Denoiser, evidence: Evidence) -> Tensor:
    network.eval()
    with torch.no_grad():
        parts = zip(evidence.planes.split(256), evidence.vector.split(256), strict=True)
        return torch.cat([network(planes, vector) for planes, vector in parts])


class _School:
    """A network in training, and the best that the held-out images have seen of it."""

    def __init__(self, view: View, config: UNetConfig, budget: Budget) -> None:
        self.view, self.config = view, config
        self.named = view.has(Channel.SOURCES) and view.has(Channel.N_PRIVATE)
        self.rounds = int(view.protocol.get("rounds", 1)) if self.named else 1
        self.held_out, self.samples = _parted(view, config)
        self.known = Knowledge.learn(view, budget)
        self.exam = self._evidence(self.held_out, "exam", 0)
        self.linear = self._linear_share()
        self.network = build(view, config)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.lr)
        steps = config.epochs * training.steps_of_an_epoch(len(self.samples), config.batch)
        self.scheduler = training.schedule(self.optimizer, steps)
        self.kept: dict[str, Tensor] = {}

    def _evidence(self, samples: Samples, use: str, turn: int) -> Evidence:
        """Of images encoded as often as the owner's are."""
        stream = self.view.rng.stream(use=use, turn=turn)
        return weigh(self.known, (self._round(samples, stream, t) for t in range(self.rounds)))

    def _round(self, samples: Samples, stream: Stream, turn: int) -> Rows:
        encoded = encode(self.view, samples, stream.stream(round=turn))
        return exercise_rows(self.view, self.known.subspace, encoded, self.named)

    def _linear_share(self) -> float:
        clamp, truth = self.view.scale.clamp, self.held_out.images
        return training.best_share(self.exam.mean, self.exam.linear, truth, clamp)[0]

    def teach(self, epoch: int) -> None:
        """One pass over fresh encodings of the public images, in groups that meet in mixtures."""
        order = self.view.rng.stream(use="order", epoch=epoch).permutation(len(self.samples))
        groups = training.groups(order.to(self.view.device))
        for number, group in enumerate(groups):
            self._lesson(self.samples[group], epoch * len(groups) + number)

    def _lesson(self, samples: Samples, turn: int) -> None:
        evidence = self._evidence(samples, "train", turn)

        def loss_of(index: Tensor) -> Tensor:
            few = evidence[index]
            guess = few.mean + self.linear * few.linear + self.network(few.planes, few.vector)
            return training.log_error(guess, samples.images[index]).mean()

        batches = torch.arange(len(samples), device=self.view.device).split(self.config.batch)
        training.train_epoch(
            self.network,
            self.optimizer,
            batches,
            loss_of,
            self.scheduler,
            precision=self.view.precision,
        )

    def examine(self, share: float, score: float) -> tuple[float, float]:
        """The best share and score so far; the state that reached them is kept."""
        start = self.exam.mean + self.linear * self.exam.linear
        change = _corrections(self.network, self.exam)
        now = training.best_share(start, change, self.held_out.images, self.view.scale.clamp)
        if not now[1] > score:  # a network gone wild scores NaN
            return share, score
        shares = torch.tensor([self.linear, now[0]])
        self.kept = {**training.snapshot(self.network), **self.known.tensors(), "shares": shares}
        return now

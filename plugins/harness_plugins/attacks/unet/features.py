"""A decoder of features, trained on public images through the released encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.unet import training
from harness_plugins.attacks.unet.network import Decoder
from harness_plugins.holdout import held_out

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, View
    from harness_plugins.attacks.unet import UNetConfig


def decode(view: View, config: UNetConfig, progress: Progress) -> Tensor:
    """[n, *view.shape]: one image for each row of features."""
    school = _School(view, config)
    best = school.examine(0.0, -torch.inf)
    for epoch in range(config.epochs):
        school.teach(epoch)
        best = school.examine(*best)
        progress(epoch + 1, config.epochs, f"held-out SNR {best[1]:.2f} dB")
    training.restore(school.network, school.kept)
    change = school.change(school.standardise(view.features))
    return view.scale.clamp(school.mean + best[0] * change)


class _School:
    """A decoder in training: mean public image plus a correction that starts at zero."""

    def __init__(self, view: View, config: UNetConfig) -> None:
        self.view, self.config = view, config
        pool = view.public[: config.images]
        held = held_out(len(pool))
        self.held_out, self.samples = pool[:held], pool[held:]
        self.mean = self.samples.images.mean(0)
        raw = self._embed(self.samples.images)
        self.centre, self.spread = raw.mean(0), raw.std(0) + 1e-3 * raw.std() + 1e-12
        self.known = self.standardise(raw)
        self.asked = self.standardise(self._embed(self.held_out.images))
        decoder = Decoder(tuple(raw.shape[1:]), view.shape, config.base)
        self.network = decoder.to(view.device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=config.lr)
        steps = config.epochs * -(-len(self.samples) // config.batch)
        self.scheduler = training.schedule(self.optimizer, steps)
        self.kept: dict[str, Tensor] = {}

    def _embed(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [self.view.feature_encoder(batch) for batch in images.split(256)]
        return torch.cat(parts)

    def standardise(self, features: Tensor) -> Tensor:
        """Each number of the features to zero mean and unit deviation on public images."""
        return (features - self.centre) / self.spread

    def change(self, features: Tensor) -> Tensor:
        """The decoder's corrections [n, *view.shape]."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self.network(batch) for batch in features.split(256)])

    def teach(self, epoch: int) -> None:
        """One pass over the public images."""

        def loss_of(index: Tensor) -> Tensor:
            guess = self.mean + self.network(self.known[index])
            return training.log_error(guess, self.samples.images[index]).mean()

        order = self.view.rng.stream(use="order", epoch=epoch).permutation(len(self.samples))
        batches = order.to(self.view.device).split(self.config.batch)
        training.train_epoch(self.network, self.optimizer, batches, loss_of, self.scheduler)

    def examine(self, share: float, score: float) -> tuple[float, float]:
        """The best share and score so far; the weights that reached them are kept."""
        now = training.best_share(
            self.mean, self.change(self.asked), self.held_out.images, self.view.scale.clamp
        )
        if not now[1] > score:  # a network gone wild scores NaN
            return share, score
        self.kept = training.snapshot(self.network)
        return now

"""A decoder of features, trained on public images through the released encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from harness.api import CellFailed, Reconstruction
from harness_plugins.features.encoder import embed
from harness_plugins.networks import training
from harness_plugins.networks.holdout import held_out
from harness_plugins.networks.unet import start_at_zero, two_convolutions

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, View


@dataclass(frozen=True)
class Lessons:
    """A decoder's size, and its training: passes, images of a step, rate, images at the most."""

    base: int
    epochs: int
    batch: int
    lr: float
    images: int


def decode(view: View, learned: Mapping[str, Tensor], base: int) -> Tensor:
    """[n, *view.shape]: one image for each row of features, by what a school has kept."""
    features = (view.features - learned["centre"]) / learned["spread"]
    network = Decoder(tuple(features.shape[1:]), view.shape, base).to(view.device)
    training.restore(network, dict(learned))
    return view.scale.clamp(learned["mean"] + learned["share"] * _apply(network, features))


def answer(view: View, learned: Mapping[str, Tensor], base: int) -> Reconstruction:
    """The decoded images by name, and how well the decoder did on held-out public ones."""
    images = decode(view, learned, base)
    told = {
        "decoder_share": float(learned["share"]),
        "held_out_snr_db": float(learned["score"]),
    }
    return Reconstruction(images=images, targets=torch.arange(len(images)), diagnostics=told)


def _apply(network: Decoder, features: Tensor) -> Tensor:
    network.eval()
    with torch.no_grad():
        return torch.cat([network(batch) for batch in features.split(256)])


class School:
    """A decoder in training: mean public image plus a correction that starts at zero."""

    def __init__(self, view: View, lessons: Lessons) -> None:
        self.view, self.lessons = view, lessons
        pool = view.public[: lessons.images]
        held = held_out(len(pool))
        self.held_out, self.samples = pool[:held], pool[held:]
        self.mean = self.samples.images.mean(0)
        raw = embed(view, self.samples.images)
        self.centre, self.spread = raw.mean(0), raw.std(0) + 1e-3 * raw.std() + 1e-12
        self.known = self.standardise(raw)
        self.asked = self.standardise(embed(view, self.held_out.images))
        decoder = Decoder(tuple(raw.shape[1:]), view.shape, lessons.base)
        self.network = decoder.to(view.device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=lessons.lr)
        steps = lessons.epochs * -(-len(self.samples) // lessons.batch)
        self.scheduler = training.schedule(self.optimizer, steps)
        self.kept: dict[str, Tensor] = {}

    def learn(self, progress: Progress) -> dict[str, Tensor]:
        """All passes; what `decode` needs of the one that held-out images liked best."""
        best = self.examine(0.0, -torch.inf)
        for epoch in range(self.lessons.epochs):
            self.teach(epoch)
            best = self.examine(*best)
            progress(epoch + 1, self.lessons.epochs, f"held-out SNR {best[1]:.2f} dB")
        self._require_finite()
        frame = {"mean": self.mean, "centre": self.centre, "spread": self.spread}
        share, score = (self.mean.new_tensor(each) for each in best)
        return {**self.kept, **frame, "share": share, "score": score}

    def _require_finite(self) -> None:
        """A decoder that went wild would answer with the mean image, as if nothing leaked."""
        if not all(bool(weight.isfinite().all()) for weight in self.network.parameters()):
            raise CellFailed(
                "the decoder's training diverged: its weights are no numbers; try a lower rate "
                f"than {self.lessons.lr:g}"
            )

    def standardise(self, features: Tensor) -> Tensor:
        """Each number of the features to zero mean and unit deviation on public images."""
        return (features - self.centre) / self.spread

    def guess(self, index: Tensor) -> Tensor:
        """The decoder's images [b, *view.shape] of public ones, with gradients."""
        images: Tensor = self.mean + self.network(self.known[index])
        return images

    def batches(self, epoch: int) -> tuple[Tensor, ...]:
        """The rows of each step of one pass over the public images."""
        order = self.view.rng.stream(use="order", epoch=epoch).permutation(len(self.samples))
        return order.to(self.view.device).split(self.lessons.batch)

    def teach(self, epoch: int) -> None:
        """One pass over the public images."""

        def loss_of(index: Tensor) -> Tensor:
            return training.log_error(self.guess(index), self.samples.images[index]).mean()

        training.train_epoch(
            self.network,
            self.optimizer,
            self.batches(epoch),
            loss_of,
            self.scheduler,
            precision=self.view.precision,
        )

    def examine(self, share: float, score: float) -> tuple[float, float]:
        """The best share and score so far; the weights that reached them are kept."""
        change, clamp = _apply(self.network, self.asked), self.view.scale.clamp
        now = training.best_share(self.mean, change, self.held_out.images, clamp)
        if not now[1] > score:  # a network gone wild scores NaN
            return share, score
        self.kept = training.snapshot(self.network)
        return now


class Decoder(nn.Module):
    """Feature maps or vectors to planes of `shape` (c, h, w), which start at zero."""

    def __init__(self, features: tuple[int, ...], shape: tuple[int, ...], base: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.size = (-(-height // 8), -(-width // 8))
        self.shape = (height, width)
        self.enter = self._entry(features, 8 * base)
        steps: list[nn.Module] = []
        for b in (4 * base, 2 * base, base):
            steps += [nn.ConvTranspose2d(2 * b, b, 2, 2), two_convolutions(b, b, normalised=True)]
        self.steps = nn.Sequential(*steps)
        self.last = nn.Conv2d(base, channels, 1)
        start_at_zero(self.last)

    def _entry(self, features: tuple[int, ...], width: int) -> nn.Module:
        """Maps are brought to the coarsest size with their detail kept as channels."""
        if len(features) == 3:
            channels = features[0] * 16
            return nn.Sequential(_Tiles(self.size), nn.Conv2d(channels, width, 3, padding=1))
        flat = int(torch.Size(features).numel())
        spread = nn.Linear(flat, width * self.size[0] * self.size[1])
        return nn.Sequential(nn.Flatten(), spread, nn.Unflatten(1, (width, *self.size)))

    def forward(self, features: Tensor) -> Tensor:
        """[n, *features] to [n, c, h, w]."""
        planes: Tensor = self.last(self.steps(self.enter(features)))
        return planes[..., : self.shape[0], : self.shape[1]]


class _Tiles(nn.Module):
    """Maps resized to four times the coarsest size, then 4x4 tiles become channels."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.resize = nn.Upsample((4 * size[0], 4 * size[1]), mode="bilinear")
        self.tiles = nn.PixelUnshuffle(4)

    def forward(self, maps: Tensor) -> Tensor:
        """[n, p, h, w] to [n, 16p, *size]."""
        tiled: Tensor = self.tiles(self.resize(maps))
        return tiled

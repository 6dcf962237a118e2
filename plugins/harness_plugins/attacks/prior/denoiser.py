"""A denoiser for white noise of any level, trained on clean public images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from harness.api import NotApplicable
from harness_plugins.attacks.prior import DENOISER
from harness_plugins.mixtures.prior import prior_of
from harness_plugins.networks import training
from harness_plugins.networks.unet import Denoiser

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Progress, Samples, View

_DECIBELS = 10 / math.log(10)
_COMPONENTS = 512
_HELD_OUT = 2000
_BLOCK = 256
_STEPS = 100
_FEW, _MANY = 16, 32
"""Images of a step: so few that an epoch takes a hundred steps, within these bounds."""
_RATE = 2e-3
_LEAST, _MOST = 0.03, 20.0
"""Deviations of the noise that the network is trained for; images are of deviation one."""
_BLIND = 0.2
"""Share of the images whose class the network is not told."""
_SMALLEST = 8


def parted(public: Samples) -> tuple[Samples, Samples]:
    """Held-out public images, the same as the Gaussian prior's, and those to learn from."""
    held = min(_HELD_OUT, max(1, len(public) // 10))
    return public[:held], public[held:]


@dataclass(frozen=True)
class Spectrum:
    """Class `means` [classes, d], `mean` [d], components `basis` [d, q] with `variances` [q].

    `rest` [] is the variance of each dimension outside.
    """

    means: Tensor
    mean: Tensor
    basis: Tensor
    variances: Tensor
    rest: Tensor

    @classmethod
    def learned(cls, samples: Samples, classes: int, megabytes: int) -> Spectrum:
        """Of public samples; beyond the leading components all are taken to be alike."""
        prior = prior_of(samples, classes, "class", megabytes)
        d, q = prior.basis.shape
        kept = min(_COMPONENTS, q)
        left = prior.variances[kept:].sum() + prior.rest * (d - q)
        basis = prior.basis[:, :kept].contiguous()
        rest = left / max(1, d - kept)
        return cls(prior.means, prior.mean, basis, prior.variances[:kept], rest)

    def centres(self, shares: Tensor) -> Tensor:
        """[n, d] for shares [n, classes]; rows of zeros mean that the class is not known."""
        unknown = 1 - shares.sum(1, keepdim=True)
        return torch.addmm(unknown * self.mean, shares, self.means)

    def wiener(self, centred: Tensor, power: Tensor) -> Tensor:
        """[n, d] of centred rows [n, d] with white noise of `power` [n]."""
        noise = power.view(-1, 1)
        gain, least = self.variances / (self.variances + noise), self.rest / (self.rest + noise)
        return (centred * least).addmm_((centred @ self.basis) * (gain - least), self.basis.T)

    def error(self, power: Tensor) -> Tensor:
        """[n] expected squared error a value of `wiener`."""
        noise = power.view(-1, 1)
        d, q = self.basis.shape
        inside = (self.variances * noise / (self.variances + noise)).sum(1)
        return (inside + (d - q) * (self.rest * noise / (self.rest + noise)).squeeze(1)) / d


class PublicDenoiser:
    """Images from images with white noise: the Gaussian estimate, corrected by a U-Net."""

    def __init__(self, spectrum: Spectrum, shape: tuple[int, ...], base: int) -> None:
        self.spectrum, self.shape = spectrum, shape
        classes, channels = len(spectrum.means), shape[0]
        network = Denoiser(3 * channels, 1 + classes, channels + 1, base)
        self.network = network.to(spectrum.mean.device)
        training.channels_last(self.network)

    @classmethod
    def of(cls, view: View, base: int) -> PublicDenoiser:
        """What the preparation `denoiser` made."""
        kept = view.made(DENOISER.name)
        spectrum = Spectrum(**{field.name: kept[field.name] for field in fields(Spectrum)})
        denoiser = cls(spectrum, view.shape, base)
        training.restore(denoiser.network, kept)
        return denoiser

    def tensors(self) -> dict[str, Tensor]:
        """By name, for storing."""
        spectrum = {f.name: getattr(self.spectrum, f.name).contiguous() for f in fields(Spectrum)}
        return {**spectrum, **training.snapshot(self.network)}

    def __call__(self, noisy: Tensor, power: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """[n, d] and the expected squared error a value [n] of `noisy` [n, d], noise `power` [n].

        `shares` [n, classes] says of which class an image is; rows of zeros: not known. Noise
        beyond what the network is trained for leaves less and less of its correction.
        """
        centres = self.spectrum.centres(shares)
        linear = self.spectrum.wiener(noisy - centres, power) + centres
        scaled = (noisy - centres) / (1 + power).sqrt().view(-1, 1)
        planes = torch.cat([x.view(-1, *self.shape) for x in (scaled, linear, centres)], 1)
        known = power.clamp(_LEAST**2, _MOST**2)
        found = self.network(planes, torch.cat([known.log().div(4).view(-1, 1), shares], 1))
        error, sure = self.spectrum.error(power), (known / power).clamp(max=1)
        change = found[:, :-1].flatten(1) * (error.sqrt() * sure).view(-1, 1)
        spread = found[:, -1].flatten(1).mean(1).clamp(-4, 4) * sure
        return linear + change, error * spread.exp()

    @torch.no_grad()
    def denoise(self, noisy: Tensor, power: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """The same in blocks."""
        self.network.eval()
        parts = zip(*(x.split(_BLOCK) for x in (noisy, power, shares)), strict=True)
        images, errors = zip(*(self(*part) for part in parts), strict=True)
        return torch.cat(images), torch.cat(errors)


def learn_denoiser(
    view: View, budget: Budget, progress: Progress, *, epochs: int, base: int, images: int
) -> Mapping[str, Tensor]:
    """The preparation `denoiser`. NotApplicable where samples are no pictures."""
    if len(view.shape) != 3 or min(view.shape[1:]) < _SMALLEST:
        raise NotApplicable(
            f"samples of shape {tuple(view.shape)} are no pictures of at least "
            f"{_SMALLEST}x{_SMALLEST}, for which there is a denoiser; use 'lmmse' there."
        )
    samples = parted(view.public)[1][:images]
    if len(samples) < 2:
        raise NotApplicable("a denoiser cannot be learned from fewer than three public images.")
    denoiser = PublicDenoiser(
        Spectrum.learned(samples, view.classes, budget.megabytes), view.shape, base
    )
    optimizer = torch.optim.Adam(denoiser.network.parameters(), lr=_RATE)
    batch = min(_MANY, max(_FEW, len(samples) // _STEPS))
    scheduler = training.schedule(optimizer, epochs * -(-len(samples) // batch))
    for epoch in range(epochs):
        lesson = _Lesson(view, denoiser, samples, epoch)
        order = lesson.rng.permutation(len(samples)).to(view.device)
        training.train_epoch(
            denoiser.network,
            optimizer,
            order.split(batch),
            lesson.loss,
            scheduler,
            precision=view.precision,
        )
        progress(epoch + 1, epochs, f"error {_DECIBELS * lesson.mean:.2f} dB")
    return denoiser.tensors()


class _Lesson:
    """One pass over the images, with noise and forgotten classes of its own."""

    def __init__(self, view: View, denoiser: PublicDenoiser, samples: Samples, epoch: int) -> None:
        self.rng = view.rng.stream(use="denoiser", epoch=epoch)
        self.denoiser, self.samples = denoiser, samples
        self.known = torch.eye(view.classes, device=view.device)
        self.losses: list[Tensor] = []

    @property
    def mean(self) -> float:
        """Mean over the images so far of the logarithm of the squared error a value."""
        return float(torch.stack(self.losses).mean())

    def loss(self, index: Tensor) -> Tensor:
        """Of the images and of the errors foretold; all levels of noise count alike."""
        truth = self.samples.images[index].flatten(1)
        power, noise = self._noise(truth)
        told = self.rng.uniform(len(index)).to(truth) >= _BLIND
        shares = self.known[self.samples.labels[index]] * told.view(-1, 1)
        images, foretold = self.denoiser(truth + noise, power, shares)
        error = (images - truth).square().mean(1)
        logs = error.clamp(min=1e-6).log().mean()
        self.losses.append(logs.detach())
        surprise = (error.detach() / foretold + foretold.log()).mean()
        return logs + surprise

    def _noise(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Power [n], evenly spread by its logarithm, and white noise [n, d] of it."""
        low, high = torch.tensor([_LEAST, _MOST], dtype=torch.float64).log()
        deviation = (low + (high - low) * self.rng.uniform(len(like))).exp().to(like)
        white = self.rng.normal(*like.shape).to(like.device)
        return deviation.square(), white * deviation.view(-1, 1)

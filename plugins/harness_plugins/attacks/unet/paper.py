"""The paper's U-Net: a bare encoding in, a clamped image out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.unet.rows import encode, names_targets
from harness_plugins.networks import training
from harness_plugins.networks.unet import UNet
from harness_plugins.resizing import fit_images, resize

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, Samples, Stream, View
    from harness_plugins.attacks.unet import UNetConfig

_LAMBDA_TV = 1e-4


def build(view: View, config: UNetConfig) -> UNet:
    """Plain DoubleConv blocks with ReLU (appendix F)."""
    channels = view.shape[0]
    network = UNet(channels, channels, config.base, normalised=False, from_zero=False)
    return network.to(view.device)


def learn(view: View, config: UNetConfig, progress: Progress) -> dict[str, Tensor]:
    """L1 + 1e-4 TV by Adam, on public images encoded anew each epoch, at their resolution."""
    samples = view.public[: config.images]
    network = build(view, config)
    optimizer = torch.optim.Adam(network.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        rng = view.rng.stream(use="train", epoch=epoch)
        groups = training.groups(rng.permutation(len(samples)).to(view.device))
        losses = [
            _lesson(view, config, network, optimizer, samples[group], rng.stream(group=number))
            for number, group in enumerate(groups)
        ]
        progress(epoch + 1, config.epochs, f"L1 {sum(losses) / len(losses):.3f}")
    return training.snapshot(network)


def _lesson(
    view: View,
    config: UNetConfig,
    network: UNet,
    optimizer: torch.optim.Optimizer,
    samples: Samples,
    rng: Stream,
) -> float:
    """One pass over one group of images; returns its mean loss."""
    encoded = encode(view, samples, rng)
    inputs = encoded.images.to(view.device)
    truth = samples.images[encoded.secrets.sources[:, 0].to(view.device)]
    losses: list[Tensor] = []

    def loss_of(index: Tensor) -> Tensor:
        images = view.scale.clamp(network(inputs[index]))
        losses.append(_loss(images, resize(truth[index], *inputs.shape[-2:])))
        return losses[-1]

    batches = torch.arange(len(inputs), device=view.device).split(config.batch)
    training.train_epoch(network, optimizer, batches, loss_of, precision=view.precision)
    return float(torch.stack([loss.detach() for loss in losses]).mean())


def _loss(images: Tensor, truth: Tensor) -> Tensor:
    across = (images[..., 1:] - images[..., :-1]).abs().mean()
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    return (images - truth).abs().mean() + _LAMBDA_TV * (across + down)


def estimate(view: View, config: UNetConfig, prepared: Mapping[str, Tensor]) -> Tensor:
    """[n, *view.shape]: the mean over rounds where targets are named, else the first round."""
    network = build(view, config)
    training.restore(network, dict(prepared))
    if not names_targets(view):
        return _apply(view, network, view.encodings[0])
    total = view.encodings.new_zeros(view.n_private, *view.shape)
    for encodings, sources in zip(view.encodings, view.sources[:, :, 0], strict=True):
        total[sources] += _apply(view, network, encodings)
    return total / len(view.encodings)


def _apply(view: View, network: UNet, encodings: Tensor) -> Tensor:
    with torch.no_grad():
        parts = [view.scale.clamp(network(batch)) for batch in encodings.split(256)]
    return fit_images(torch.cat(parts), view.shape)

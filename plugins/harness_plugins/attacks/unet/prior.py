"""What public images tell before the release is seen: means, principal components, noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from harness.api import Channel
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Samples, View
    from harness_plugins.attacks.unet.rows import Rows

_PCA_IMAGES = 8000


@dataclass(frozen=True)
class Prior:
    """A Gaussian prior of the images and the law of the noise, all as tensors.

    `means` [classes, c, h, w] (all alike where labels are not granted); `basis` [d, q] and
    `variances` [q] of the principal components about them, `rest` [] the variance of each
    remaining dimension; `noise` []: deviation a pixel of the noise e in (1-w)e; `line` [3]:
    intercept and slope of w over the root mean square of an encoding, and the error of that.
    """

    means: Tensor
    basis: Tensor
    variances: Tensor
    rest: Tensor
    noise: Tensor
    line: Tensor

    @classmethod
    def of(cls, prepared: Mapping[str, Tensor], device: torch.device) -> Prior:
        """From the tensors of `tensors`, wherever they were stored."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: prepared[f"prior.{name}"].to(device) for name in names})

    def tensors(self) -> dict[str, Tensor]:
        """By name, for storing."""
        return {f"prior.{field.name}": getattr(self, field.name) for field in fields(self)}

    def weight(self, rows: Rows) -> Tensor:
        """Weight [n] of each row's own image.

        Where it is not granted, the norm of the encoding gives a first guess, because the noise
        in it is multiplied by 1 - w. A soft label of several classes then says it exactly, once
        that guess has told which of its shares is the image's own.
        """
        if rows.weights is not None:
            return rows.weights[:, 0]
        guess = self._weight_by_norm(rows)
        if rows.labels is None:
            return guess
        several = (rows.labels > 0).sum(1) > 1
        share = (self.own_class(rows) * rows.labels).sum(1)
        return torch.where(several, share, guess)

    def own_class(self, rows: Rows) -> Tensor:
        """[n, classes] probabilities: a class whose share of the label is about w is likely."""
        if rows.labels is None:
            return rows.images.new_full((len(rows.images), len(self.means)), 1 / len(self.means))
        granted = rows.weights is not None
        weight = rows.weights[:, 0] if rows.weights is not None else self._weight_by_norm(rows)
        misfit = (rows.labels - weight.view(-1, 1)) / (1e-3 if granted else self.line[2])
        unlikely = misfit.square().neg().div(2).masked_fill(rows.labels <= 0, -torch.inf)
        return unlikely.softmax(1)

    def _weight_by_norm(self, rows: Rows) -> Tensor:
        return (self.line[0] + self.line[1] * _rms(rows.images)).clamp(0.02, 1.0)


def learn_prior(
    view: View, samples: Samples, exercised: Samples, encoded: Encoded, components: int
) -> Prior:
    """From public samples, and the encodings of some of them."""
    labelled = view.has(Channel.LABELS)
    means = _class_means(samples, view.classes, labelled)
    centred = (samples.images - means[samples.labels])[:_PCA_IMAGES].flatten(1)
    basis, variances, rest = _principal_components(centred, components)
    noise, line = _noise_law(view, exercised, encoded)
    return Prior(means, basis, variances, rest, noise, line)


def _class_means(samples: Samples, classes: int, labelled: bool) -> Tensor:
    """Classes without samples get the mean of all, as do all where labels are unknown."""
    mean = samples.images.mean(0)
    means = [mean] * classes
    for label in samples.labels.unique().tolist() if labelled else []:
        means[label] = samples.images[samples.labels == label].mean(0)
    return torch.stack(means)


def _principal_components(rows: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor]:
    n, d = rows.shape
    wanted = min(components, n - 1, d)
    total = rows.square().sum() / n
    if not wanted:
        return rows.new_zeros(d, 0), rows.new_zeros(0), (total / d).clamp(min=1e-6)
    _, scales, basis = torch.svd_lowrank(rows, q=wanted)
    variances = (scales.square() / n).clamp(min=1e-6)
    rest = (total - variances.sum()).clamp(min=0) / max(1, d - wanted)
    return basis.contiguous(), variances, rest.clamp(min=1e-6)


def _noise_law(view: View, samples: Samples, encoded: Encoded) -> tuple[Tensor, Tensor]:
    """`noise` and `line` of the prior, measured at the targets' resolution."""
    secrets, device = encoded.secrets, view.device
    images = fit_images(encoded.images.to(device), view.shape)
    weights, sources = secrets.weights.to(device), secrets.sources.to(device)
    mixture = Mixture.of(weights[None], sources[None], len(samples))
    leftover = images.flatten(1) - mixture.apply(samples.images.flatten(1))
    others = (1 - weights[:, 0]).square().mean().clamp(min=1e-9)
    noise = (leftover.square().mean() / others).sqrt()
    return noise, _regression(_rms(images), weights[:, 0])


def _regression(x: Tensor, y: Tensor) -> Tensor:
    """Intercept, slope and deviation of the residual of y over x, [n] each."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = (dx * dy).mean() / dx.square().mean().clamp(min=1e-12)
    error = (dy - slope * dx).square().mean().sqrt()
    return torch.stack([y.mean() - slope * x.mean(), slope, error.clamp(min=1e-3)])


def _rms(images: Tensor) -> Tensor:
    return images.flatten(1).square().mean(1).sqrt()

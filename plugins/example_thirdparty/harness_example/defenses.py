"""The defenses at work, one of each stage."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from harness.api import (
    Encoded,
    EncodingDefense,
    GradientDefense,
    Samples,
    Secrets,
    Stream,
    TrainingDefense,
)
from harness_example.plugin import BlurConfig, ClipConfig, CloudsConfig, SmallHiddenConfig


class Blur(EncodingDefense[BlurConfig]):
    """Circular convolution with a Gaussian; each encoding is made of one image."""

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """Images [n,c,h,w] blurred, labels as they are. Nothing is drawn from `rng`."""
        rows = torch.arange(len(private)).view(-1, 1)
        classes = 1 + max(int(private.labels.max()), int(public.labels.max()))
        return Encoded(
            images=_blur(private.images, self.config.strength),
            labels=one_hot(private.labels, classes).float(),
            secrets=Secrets(weights=torch.ones(len(private), 1), sources=rows),
        )


class Clouds(EncodingDefense[CloudsConfig]):
    """Noise of long waves on every image by itself."""

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """Images [n,c,h,w] under noise, labels as they are."""
        white = rng.normal(*private.images.shape).to(private.images)
        point = torch.zeros_like(private.images[:1])
        point[..., 0, 0] = 1
        loudness = _blur(point, self.config.size).flatten(2).norm(dim=2).view(1, -1, 1, 1)
        noise = _blur(white, self.config.size) / loudness
        rows = torch.arange(len(private)).view(-1, 1)
        classes = 1 + max(int(private.labels.max()), int(public.labels.max()))
        return Encoded(
            images=private.images + self.config.thickness * noise,
            labels=one_hot(private.labels, classes).float(),
            secrets=Secrets(weights=torch.ones(len(private), 1), sources=rows),
        )


def _blur(images: Tensor, deviation: float) -> Tensor:
    """A Gaussian of `deviation` s is exp(-2 (π s f)²) at frequency f, along each axis."""
    height, width = images.shape[-2:]
    rows = torch.fft.fftfreq(height, device=images.device).view(-1, 1)
    columns = torch.fft.rfftfreq(width, device=images.device)
    response = torch.exp(-2 * (torch.pi * deviation) ** 2 * (rows**2 + columns**2))
    return torch.fft.irfft2(torch.fft.rfft2(images) * response, s=(height, width))


class SmallHidden(TrainingDefense[SmallHiddenConfig]):
    """Keeps features short."""

    def penalty(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """A scalar: weight · mean of ‖h(x)‖² over the batch."""
        penalty: Tensor = self.config.weight * hidden.flatten(1).square().sum(1).mean()
        return penalty


class Clip(GradientDefense[ClipConfig]):
    """Keeps gradients short."""

    def protect(self, gradients: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """All parameters' gradients, scaled together so that their norm is at most `norm`."""
        length = torch.stack([g.norm() for g in gradients.values()]).norm()
        scale = (self.config.norm / length).clamp(max=1)
        return {name: gradient * scale for name, gradient in gradients.items()}

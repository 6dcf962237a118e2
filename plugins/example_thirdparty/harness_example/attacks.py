"""The attacks at work. Each sees a `View`: what it asked for and was granted, nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from harness.api import Attack, Budget, Config, Progress, Reconstruction, View
from harness_example.plugin import FeatureMeanConfig


class Sharpen(Attack[Config]):
    """Inverts any encoding that is a convolution, without being told which."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """The filter [c, h, w/2+1], as real numbers, learned by encoding public images."""
        encoded = view.encoder.encode(view.public, view.public, view.rng)
        clear = torch.fft.rfft2(view.public.images)
        blurred = torch.fft.rfft2(encoded.images.to(view.device))
        energy = blurred.abs().square().sum(0)
        response = (clear * blurred.conj()).sum(0) / energy.clamp(min=1e-12)
        return {"filter": torch.view_as_real(response)}

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each encoding of the first round; row i decodes encoding i."""
        response = torch.view_as_complex(prepared["filter"].contiguous())
        spectrum = torch.fft.rfft2(view.encodings[0])
        images = torch.fft.irfft2(spectrum * response, s=view.shape[-2:])
        return Reconstruction(images, rows=torch.arange(len(images)))


class FeatureMean(Attack[FeatureMeanConfig]):
    """Looks for public images with the same features."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each row of features, which are in the targets' order."""
        with torch.no_grad():
            known = view.feature_encoder(view.public.images).flatten(1)
        distances = torch.cdist(view.features.flatten(1), known)
        near = distances.topk(min(self.config.neighbours, len(known)), largest=False).indices
        images = view.public.images[near].mean(1)
        return Reconstruction(images, targets=torch.arange(len(images)))


class FirstLayer(Attack[Config]):
    """Divides the gradient of the first layer's weights by that of its bias."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each batch. A scaled gradient gives the same image."""
        weight, delta = _first_layer(view)
        inputs = torch.einsum("brd,br->bd", weight, delta)
        energy = delta.square().sum(1, keepdim=True)
        images = (inputs / energy.clamp(min=torch.finfo(energy.dtype).tiny)).view(-1, *view.shape)
        found = {"dead_batches": float((energy == 0).sum())}
        return Reconstruction(images, rows=torch.arange(len(images)), diagnostics=found)


def _first_layer(view: View) -> tuple[Tensor, Tensor]:
    """The gradients of the first layer's weight [batches, r, d] and bias [batches, r]."""
    pixels = math.prod(view.shape)
    for name, weight in view.gradients.items():
        bias = name.removesuffix("weight") + "bias"
        if weight.ndim == 3 and weight.shape[-1] == pixels and bias in view.gradients:
            return weight, view.gradients[bias]
    raise ValueError(f"this model has no linear layer with a bias over {pixels} pixels")


class Lookup(Attack[Config]):
    """Compares each encoding with each candidate."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Scores [targets, candidates], higher where more likely; no images."""
        targets = view.sources[0, :, 0]
        rows = view.encodings[0].flatten(1)[targets.argsort()]
        return Reconstruction(
            claims={"candidate_scores": -torch.cdist(rows, view.candidates.flatten(1))}
        )

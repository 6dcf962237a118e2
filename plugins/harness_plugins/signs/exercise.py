"""Mixtures whose masks the attacker knows: its own images under the owner's law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixing import mix
from harness_plugins.resizing import fit_images
from harness_plugins.sign_masks import flip_signs

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Samples, Stream, View


@dataclass(frozen=True)
class Exercise:
    """One round: `encodings` and the `mixtures` under their masks, both [n, *view.shape].

    `weights` [n, k], `sources` [n, k] and the `samples` that were encoded.
    """

    encodings: Tensor
    mixtures: Tensor
    weights: Tensor
    sources: Tensor
    samples: Samples

    @property
    def primary(self) -> Tensor:
        """[n, *view.shape]: the image that each encoding is of."""
        return self.samples.images[self.sources[:, 0]]


def encode(view: View, samples: Samples, rng: Stream) -> Exercise:
    """Samples under the owner's law. CellFailed where encodings are not shaped like targets."""
    encoded = view.encoder.encode(samples, view.public, rng)
    device = view.device
    return Exercise(
        fit_images(encoded.images.to(device), view.shape),
        fit_images(mixtures_of(samples, encoded).to(device), view.shape),
        encoded.secrets.weights.to(device),
        encoded.secrets.sources.to(device),
        samples,
    )


def mixtures_of(samples: Samples, encoded: Encoded) -> Tensor:
    """[n, *shape]: what was under the masks.

    Where the defense kept `masks`, as InstaHide packs them, they are undone, which serves
    augmented images and public patches too. Else the mixture is added up from the samples; an
    encoding of other images, or of another shape, is taken to be its own mixture.
    """
    secrets = encoded.secrets
    if "masks" in secrets.extra:
        undone = encoded.images.clone(memory_format=torch.contiguous_format)
        flip_signs(undone, secrets.extra["masks"])
        return undone
    own = bool((secrets.sources < len(samples)).all())
    if own and encoded.images.shape[1:] == samples.images.shape[1:]:
        return mix(samples.images, secrets.sources, secrets.weights)
    return encoded.images


def hides_signs(exercise: Exercise) -> bool:
    """Whether encodings are like their mixtures in absolute values, and unlike them as they are.

    Strong noise makes both unlike, so that one is measured by the other.
    """
    seen, mixed = exercise.encodings.flatten(1), exercise.mixtures.flatten(1)
    return abs(_likeness(seen, mixed)) < 0.5 * _likeness(_flat(seen.abs()), _flat(mixed.abs()))


def _likeness(one: Tensor, other: Tensor) -> float:
    """Mean cosine of rows [n, d]."""
    return float(torch.nn.functional.cosine_similarity(one, other).mean())


def _flat(rows: Tensor) -> Tensor:
    """Rows without their common part, which absolute values always share."""
    return rows - rows.mean(0)

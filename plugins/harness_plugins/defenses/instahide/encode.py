"""Algorithm 2 of the InstaHide paper, and its inference (section 3.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import log_softmax

from harness.api import (
    Encoded,
    Law,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Stream,
)
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.augmentation import draw_moves
from harness_plugins.defenses.instahide.patches import (
    Patches,
    PublicPool,
    draw_different,
    draw_patches,
    public_pool,
)
from harness_plugins.mixing import draw_sources, draw_weights, mix, mix_labels, mix_samples
from harness_plugins.sign_masks import draw_masks, flip_signs, masks_in_turn
from harness_plugins.soft_labels import one_hot_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


class InstaHide(PiecewiseDefense[InstaHideConfig]):
    """x~_i = s_i o (w_i1 x_i + w_i2 x_.. + ...), labels of private images mixed alike."""

    def __init__(self, config: InstaHideConfig) -> None:
        super().__init__(config)
        self._pooled: PublicPool | None = None

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """`extra` keeps `masks` [b, ceil(d/8)] uint8, as `draw_masks` packs them.

        Labels of cross mixtures sum to the private weights. CellFailed where there are too few
        images to mix, or images cannot be augmented.
        """
        n, own, law = len(private), self.config.privates, self.config.augment
        sources = draw_sources(n, own, rng)
        weights = self._weights(n, rng)
        moves = None if law == "none" else draw_moves(private, law, rng)
        patches = self._patches(n, public.images, rng)
        masks = masks_in_turn(n, math.prod(private.shape), rng, self.config.prng)
        hard = one_hot_labels(private, public)

        def rows(index: Tensor) -> Encoded:
            mixed, by = sources[index], weights[index]
            shares = by[:, :own]
            make = moves.mix if moves else mix_samples
            images = make(private, mixed, shares)
            labels = mix_labels(hard, mixed, shares)
            if patches is not None:
                patches[index].add_to(images, by[:, own:])
                mixed = torch.cat([mixed, n + patches.rows[index]], 1)
            signs = torch.cat([drawn() for _, drawn in masks.take(len(index))])
            flip_signs(images, signs)
            return Encoded(images, labels, Secrets(by, mixed, {"masks": signs}))

        return Round(private.shape, rows)

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Signs alone; what is mixed may be windows of public images, or augmented ones."""
        windows = ["windows of public images"] if self.config.scheme == "cross" else []
        augmented = ["augmented images"] if self.config.augment != "none" else []
        return Law("none", signs=True, altered=" and ".join([*augmented, *windows]))

    @property
    def infers(self) -> bool:
        """Whether test images are encoded."""
        return self.config.infer > 0

    @torch.no_grad()
    def infer(
        self, model: nn.Module, images: Tensor, private: Samples, public: Samples, rng: Stream
    ) -> Tensor:
        """[m, classes]: logarithm of the mean softmax over `infer` encodings of each image.

        The paper averages predictions; its official code has no encoded inference to say more.
        The test image takes the primary image's place, its partners are other images each time,
        not augmented. With infer=0 the model's own logits.
        """
        if not self.infers:
            logits: Tensor = model(images)
            return logits
        predictions = torch.stack(
            [
                log_softmax(model(self._disguised(images, private, public, rng)).float(), dim=1)
                for _ in range(self.config.infer)
            ]
        )
        return predictions.logsumexp(0) - math.log(self.config.infer)

    def _disguised(self, images: Tensor, private: Samples, public: Samples, rng: Stream) -> Tensor:
        """Test images [m, *shape] encoded once, by the law of training."""
        m, own = len(images), self.config.privates
        weights = self._weights(m, rng)
        first = weights[:, 0].view(-1, *[1] * (images.ndim - 1))
        mixed = (images * first.to(images.device)).contiguous()
        if own > 1:
            partners = draw_different(m, own - 1, len(private), rng)
            mixed += mix(private.images, partners, weights[:, 1:own])
        patches = self._patches(m, public.images, rng)
        if patches is not None:
            patches.add_to(mixed, weights[:, own:])
        flip_signs(mixed, draw_masks(m, mixed[:1].numel(), rng, self.config.prng))
        return mixed

    def _weights(self, n: int, rng: Stream) -> Tensor:
        config = self.config
        cross = config.scheme == "cross"
        return draw_weights(
            n,
            config.k,
            rng,
            max_weight=config.max_weight,
            law=config.weights,
            min_private=config.min_private if cross else 0.0,
            privates=config.privates if cross else None,
        )

    def _patches(self, n: int, public: Tensor, rng: Stream) -> Patches | None:
        """The public part; its pool is looked over once for the rounds of one release."""
        count = self.config.k - self.config.privates
        if not count:
            return None
        if self._pooled is None or self._pooled.images is not public:
            self._pooled = public_pool(public, count)
        return draw_patches(self._pooled, n, count, rng)

"""A convolutional network with strides and without BatchNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Rate, Recipe, Victim, VictimSpec, hookimpl
from harness_plugins.victims.image_shape import require_image

if TYPE_CHECKING:
    from torch import nn


class StridedConfig(Recipe):
    """Four 3x3 convolutions of `width`, 2·, 2· and 4·`width` channels, strides 1, 2, 2, 2."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    lr: Rate = 1e-3
    cut: Cut = "conv2"
    width: int = Field(32, ge=1, le=4096, description="channels of the first convolution")


STRIDES = (1, 2, 2, 2)


class Strided(Victim[StridedConfig]):
    """conv1 to conv4 (the last three halve the image), flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        from torch import nn

        from harness_plugins.victims.plain_convolutions import plain_convolutions

        image = require_image("strided", shape)
        w = self.config.width
        widths = (w, 2 * w, 2 * w, 4 * w)
        return plain_convolutions(
            image, classes, widths=widths, strides=STRIDES, kernel=3, act=nn.ReLU
        )


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="strided",
            version="1",
            summary="four strided convolutions, no BatchNorm, no pooling: gradients that tell much",
            reference="Springenberg et al. 2015, Striving for Simplicity, arXiv:1412.6806, for "
            "strides in place of pooling; depth and widths are ours",
            factory="harness_plugins.victims.strided:Strided",
            config=StridedConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            formula="ReLU(conv 3x3, w) > ReLU(conv 3x3, 2w, stride 2), twice "
            "> ReLU(conv 3x3, 4w, stride 2) > Linear classes; w the width",
            weaknesses=(
                "The network decides the score: with max pooling in place of the strides, gradient "
                "matching lost about 15 dB of PSNR (8 CIFAR-10 images, at initialisation, 600 "
                "steps). Compare attacks and defenses on one victim.",
            ),
            example="harness evaluate --defense gradprune --victim strided",
        )
    ]

"""The six-layer ConvNet without BatchNorm of the gradient inversion paper's MNIST experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Rate, Recipe, Victim, VictimSpec, hookimpl
from harness_plugins.victims.image_shape import require_image

if TYPE_CHECKING:
    from torch import nn


class ConvNet6Config(Recipe):
    """Five 3x3 convolutions, of `width` and then 2·`width` channels, and a linear layer."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    lr: Rate = 2e-3
    cut: Cut = "conv2"
    width: int = Field(16, ge=1, le=4096, description="channels of the first convolution")


STRIDES = (1, 2, 1, 2, 1)


class ConvNet6(Victim[ConvNet6Config]):
    """conv1 to conv5 (the second and the fourth halve the image), flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images or feature maps [c,h,w]."""
        from torch import nn

        from harness_plugins.victims.plain_convolutions import plain_convolutions

        image = require_image("convnet6", shape)
        w = self.config.width
        widths = (w, 2 * w, 2 * w, 2 * w, 2 * w)
        return plain_convolutions(
            image, classes, widths=widths, strides=STRIDES, kernel=3, act=nn.ReLU
        )


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="convnet6",
            version="1",
            summary="six layers without BatchNorm, for digits: 48 234 weights at 28x28",
            reference="Huang et al. 2021, Evaluating Gradient Inversion Attacks and Defenses in "
            "Federated Learning, arXiv:2112.00059, appendix, experiment on MNIST",
            factory="harness_plugins.victims.convnet6:ConvNet6",
            config=ConvNet6Config,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            formula="ReLU(conv 3x3, w) > ReLU(conv 3x3, 2w), four times, with strides 2, 1, 2, 1 "
            "> Linear classes; w the width",
            weaknesses=(
                "The paper calls its network a simple 6-layer ConvNet without BatchNorm and says "
                "no more: widths, strides and recipe are ours.",
            ),
            example="harness evaluate --dataset mnist --defense 'gradprune[p=0.99]' "
            "--victim convnet6",
        )
    ]

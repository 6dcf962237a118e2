"""The LeNet with sigmoids of "Deep Leakage from Gradients"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from harness.api import (
    BatchSize,
    Cut,
    Decay,
    Epochs,
    Optimizer,
    Rate,
    Recipe,
    Victim,
    VictimSpec,
    hookimpl,
)
from harness_plugins.victims.image_shape import require_image

if TYPE_CHECKING:
    from torch import nn


class LeNetSigmoidConfig(Recipe):
    """Three convolutions of 12 channels; all weights and biases from U(-spread, spread)."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    optimizer: Optimizer = "adam"
    lr: Rate = 1e-2
    weight_decay: Decay = 0.0
    cut: Cut = "conv2"
    spread: float = Field(
        0.5,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="weights and biases are drawn from U(-spread, spread) at first",
    )


WIDTHS = (12, 12, 12)
STRIDES = (2, 2, 1)


class LeNetSigmoid(Victim[LeNetSigmoidConfig]):
    """conv1, conv2, conv3, flatten, head; everything in them from U(-spread, spread)."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images [c,h,w] of any size."""
        from torch import nn

        from harness_plugins.victims.plain_convolutions import plain_convolutions

        image = require_image("lenet-sigmoid", shape)
        model = plain_convolutions(
            image, classes, widths=WIDTHS, strides=STRIDES, kernel=5, act=nn.Sigmoid
        )
        spread = self.config.spread
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -spread, spread)
        return model


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="lenet-sigmoid",
            version="1",
            summary="DLG's LeNet: sigmoids, strides, and the wide initial weights of its attack",
            reference="Zhu et al. 2019, Deep Leakage from Gradients, arXiv:1906.08935; layers and "
            "weights by its published code (mit-han-lab/dlg), which has three convolutions",
            factory="harness_plugins.victims.lenet_sigmoid:LeNetSigmoid",
            config=LeNetSigmoidConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {}},
            formula="σ(conv 5x5, 12, stride 2) > σ(conv 5x5, 12, stride 2) > σ(conv 5x5, 12) "
            "> Linear classes (from 768 inputs at 32 px); every entry from U(-spread, spread)",
            weaknesses=(
                "The paper attacks it fresh (`--victim-epochs 0`) and gives no recipe: the one "
                "here is ours.",
                "It learns slowly: on 2 000 images of Fashion-MNIST 0.78 after 10 epochs and 0.83 "
                "after 30; on CIFAR-10 0.26 with the quick preset. It is there for its gradients.",
                "No network that is trained in earnest starts from such weights: what its "
                "gradients leak says little about those that are.",
            ),
            example="harness evaluate --defense gradprune --victim lenet-sigmoid --victim-epochs 0",
        )
    ]

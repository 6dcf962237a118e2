"""ResNet-18 for small images."""

from __future__ import annotations

from pydantic import Field

from harness.api import Cut, Epochs, Optimizer, Rate, Recipe, Schedule, VictimSpec, hookimpl
from harness_plugins.victims.normalisation import NORM_CHOICE, Norm


class ResNet18Config(Recipe):
    """InstaHide's training by default: SGD, the rate divided by ten at 1/2 and 3/4 of the way."""

    epochs: Epochs = 200
    optimizer: Optimizer = "sgd"
    lr: Rate = 0.1
    schedule: Schedule = "step"
    cut: Cut = "layer2"
    width: int = Field(64, ge=1, le=1024, description="channels of the first convolution")
    norm: Norm = Field("batch", description=NORM_CHOICE)


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="resnet18",
            version="1",
            summary="ResNet-18; up to 64 px its first layer is 3x3 and keeps the resolution",
            reference="He et al. 2016, Deep Residual Learning, arXiv:1512.03385",
            factory="harness_plugins.victims.resnet18.network:ResNet18",
            config=ResNet18Config,
            presets={
                "quick": {"epochs": 4, "lr": 0.05, "schedule": "cosine", "width": 16},
                "standard": {"epochs": 30, "schedule": "cosine"},
                "paper": {},
            },
            weaknesses=("Slow without a GPU: an epoch of 2 000 images takes about a minute.",),
            example="harness evaluate --victim 'resnet18[epochs=30]'",
        )
    ]

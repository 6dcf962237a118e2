"""VGG16 for small images."""

from __future__ import annotations

from pydantic import Field

from harness.api import (
    BatchSize,
    Cut,
    Decay,
    Epochs,
    Optimizer,
    Rate,
    Recipe,
    Schedule,
    VictimSpec,
    hookimpl,
)
from harness_plugins.victims.normalisation import NORM_CHOICE, Norm


class Vgg16Config(Recipe):
    """MixCon's training of it: SGD, the rate divided by ten on the way, batches of 300."""

    epochs: Epochs = 300
    batch_size: BatchSize = 300
    optimizer: Optimizer = "sgd"
    lr: Rate = 0.1
    weight_decay: Decay = 5e-4
    schedule: Schedule = "step"
    cut: Cut = "block2"
    width: int = Field(64, ge=1, le=1024, description="channels of the first block")
    norm: Norm = Field("batch", description=NORM_CHOICE)


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="vgg16",
            version="1",
            summary="VGG16 with BatchNorm and one linear layer behind its convolutions",
            reference="Simonyan & Zisserman 2015, Very Deep Convolutional Networks, "
            "arXiv:1409.1556, table 1, column D; cut and training by Li et al., MixCon, "
            "arXiv:2010.11463, appendix D.2",
            factory="harness_plugins.victims.vgg16.network:Vgg16",
            config=Vgg16Config,
            presets={
                "quick": {
                    "epochs": 6,
                    "batch_size": 64,
                    "lr": 0.05,
                    "schedule": "cosine",
                    "width": 16,
                },
                "standard": {"epochs": 30, "batch_size": 128, "schedule": "cosine"},
                "paper": {},
            },
            weaknesses=(
                "Not MixCon's training to the letter: its rate falls last at 5/6 of the way, here "
                "at 3/4; and it writes momentum .1, where the engine's sgd has .9. Steps that add "
                "up to those of momentum .1 have lr=0.011.",
                "Slow without a GPU: an epoch of 2 000 images takes about a minute at width 64.",
                "With norm=group it hardly learns at the rates here; lr=0.01 or adamw does.",
                "Its BatchNorm statistics describe the encodings it was trained on: on clean "
                "images it can look worse than its weights are (see `bn_recomputed`).",
            ),
            example="harness evaluate --dataset cifar10 --defense mixcon "
            "--victim 'vgg16[width=16]'",
        )
    ]

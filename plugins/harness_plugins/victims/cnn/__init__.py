"""A small convolutional network: the default victim."""

from __future__ import annotations

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Rate, Recipe, VictimSpec, hookimpl
from harness_plugins.victims.normalisation import NORM_CHOICE, Norm


class CnnConfig(Recipe):
    """Two convolutions of stride 2 with a norm, of `width` and 2·`width` channels."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    lr: Rate = 2e-3
    weight_decay: Decay = 1e-2
    cut: Cut = "conv2"
    width: int = Field(32, ge=1, le=4096, description="channels of the first convolution")
    norm: Norm = Field("batch", description=NORM_CHOICE)


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="cnn",
            version="1",
            bfloat16=True,
            summary="small convolutional network with BatchNorm; trains in seconds on a CPU",
            reference="Ioffe & Szegedy 2015, Batch Normalization, arXiv:1502.03167",
            factory="harness_plugins.victims.cnn.network:Cnn",
            config=CnnConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            weaknesses=(
                "Its BatchNorm statistics describe the encodings it was trained on: on clean "
                "images it can look worse than its weights are (see `bn_recomputed`).",
            ),
            example="harness evaluate --victim 'cnn[width=64,epochs=50]'",
        )
    ]

"""A fully connected network."""

from __future__ import annotations

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Recipe, VictimSpec, hookimpl


class MlpConfig(Recipe):
    """Two hidden layers of `width` units."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    cut: Cut = "hidden1"
    width: int = Field(256, ge=1, le=65536, description="units of each hidden layer")


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="mlp",
            version="1",
            summary="two hidden layers without BatchNorm; takes any shape",
            reference="Rumelhart, Hinton & Williams 1986, Nature 323",
            factory="harness_plugins.victims.mlp.network:Mlp",
            config=MlpConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            example="harness evaluate --victim 'mlp[width=1024]'",
        )
    ]

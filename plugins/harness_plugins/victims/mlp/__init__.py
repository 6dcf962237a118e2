"""A fully connected network."""

from __future__ import annotations

from pydantic import Field

from harness.api import Recipe, VictimSpec, hookimpl


class MlpConfig(Recipe):
    """Two hidden layers of `width` units."""

    epochs: int = 30
    batch_size: int = 64
    weight_decay: float = 1e-2
    cut: str = "hidden1"
    width: int = Field(256, ge=1)


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
            example="--victim 'mlp[width=1024]'",
        )
    ]

"""A fully connected network."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Recipe, Victim, VictimSpec, hookimpl

if TYPE_CHECKING:
    from torch import nn


class MlpConfig(Recipe):
    """Two hidden layers of `width` units."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    cut: Cut = "hidden1"
    width: int = Field(256, ge=1, le=65536, description="units of each hidden layer")


class Mlp(Victim[MlpConfig]):
    """flatten, hidden1, hidden2, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
        from torch import nn

        width = self.config.width
        return nn.Sequential(
            OrderedDict(
                flatten=nn.Flatten(),
                hidden1=_block(math.prod(shape), width),
                hidden2=_block(width, width),
                head=nn.Linear(width, classes),
            )
        )


def _block(inputs: int, width: int) -> nn.Sequential:
    from torch import nn

    return nn.Sequential(OrderedDict(linear=nn.Linear(inputs, width), act=nn.ReLU()))


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="mlp",
            version="1",
            summary="two hidden layers without BatchNorm; takes any shape",
            reference="Rumelhart, Hinton & Williams 1986, Nature 323",
            factory="harness_plugins.victims.mlp:Mlp",
            config=MlpConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            example="harness evaluate --victim 'mlp[width=1024]'",
        )
    ]

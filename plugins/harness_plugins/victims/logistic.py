"""One linear layer: logistic regression."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Recipe, Victim, VictimSpec, hookimpl

if TYPE_CHECKING:
    from torch import nn


class LogisticConfig(Recipe):
    """What is pooled, and the training."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    cut: Cut = "flatten"
    pool: Literal["auto", "yes", "no"] = Field(
        default="auto",
        description="average over positions first; auto: of maps with more channels than positions",
    )


class Logistic(Victim[LogisticConfig]):
    """flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
        from torch import nn

        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inputs = math.prod(shape)
        if self._pools(shape):
            layers["pool"], inputs = nn.AdaptiveAvgPool2d(1), shape[0]
        layers.update(flatten=nn.Flatten(), head=nn.Linear(inputs, classes))
        return nn.Sequential(layers)

    def _pools(self, shape: tuple[int, ...]) -> bool:
        if len(shape) != 3 or self.config.pool == "no":
            return False
        return self.config.pool == "yes" or shape[0] > math.prod(shape[1:])


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="logistic",
            version="1",
            summary="logistic regression, over positions pooled where maps have many channels",
            reference="Cox 1958, The Regression Analysis of Binary Sequences",
            factory="harness_plugins.victims.logistic:Logistic",
            config=LogisticConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            weaknesses=("Made for a network's features: of pixels it sees little.",),
            example="harness evaluate --victim logistic --defense 'dpsgd[epsilon=2]'",
        )
    ]

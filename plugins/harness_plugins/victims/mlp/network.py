"""The network of the `mlp` victim."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from harness.api import Victim
from harness_plugins.victims.mlp import MlpConfig


class Mlp(Victim[MlpConfig]):
    """flatten, hidden1, hidden2, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
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
    return nn.Sequential(OrderedDict(linear=nn.Linear(inputs, width), act=nn.ReLU()))

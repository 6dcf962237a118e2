"""The network of the `paper-head` victim."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from harness.api import Victim
from harness_plugins.victims.paper_head import PaperHeadConfig

HIDDEN1, HIDDEN2 = 1024, 512
DROPOUT = 0.5


class PaperHead(Victim[PaperHeadConfig]):
    """flatten, hidden1, hidden2, head: equation 8 of the singularized-mixup paper."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
        return nn.Sequential(
            OrderedDict(
                flatten=nn.Flatten(),
                hidden1=_block(math.prod(shape), HIDDEN1),
                hidden2=_block(HIDDEN1, HIDDEN2),
                head=nn.Linear(HIDDEN2, classes),
            )
        )


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            linear=nn.Linear(inputs, outputs),
            norm=nn.BatchNorm1d(outputs),
            act=nn.GELU(),
            dropout=nn.Dropout(DROPOUT),
        )
    )

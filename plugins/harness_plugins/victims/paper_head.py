"""The classifier of the singularized-mixup paper."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness.api import BatchSize, Cut, Epochs, Recipe, Victim, VictimSpec, hookimpl

if TYPE_CHECKING:
    from torch import nn


class PaperHeadConfig(Recipe):
    """The paper's training: AdamW, cosine schedule, batches of 128 (appendix E)."""

    epochs: Epochs = 20
    batch_size: Annotated[
        BatchSize, Field(ge=2, description="images per step; BatchNorm needs two")
    ] = 128
    cut: Cut = "hidden1"


HIDDEN1, HIDDEN2 = 1024, 512
DROPOUT = 0.5


class PaperHead(Victim[PaperHeadConfig]):
    """flatten, hidden1, hidden2, head: equation 8 of the singularized-mixup paper."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
        from torch import nn

        return nn.Sequential(
            OrderedDict(
                flatten=nn.Flatten(),
                hidden1=_block(math.prod(shape), HIDDEN1),
                hidden2=_block(HIDDEN1, HIDDEN2),
                head=nn.Linear(HIDDEN2, classes),
            )
        )


def _block(inputs: int, outputs: int) -> nn.Sequential:
    from torch import nn

    return nn.Sequential(
        OrderedDict(
            linear=nn.Linear(inputs, outputs),
            norm=nn.BatchNorm1d(outputs),
            act=nn.GELU(),
            dropout=nn.Dropout(DROPOUT),
        )
    )


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="paper-head",
            version="1",
            summary="the singularized-mixup paper's classifier: three dense layers on features",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "equation 8; training by appendix E and table 5",
            factory="harness_plugins.victims.paper_head:PaperHead",
            config=PaperHeadConfig,
            presets={"quick": {"epochs": 6}, "standard": {}, "paper": {"epochs": 200}},
            formula="Flatten > Linear 1024 > BN > GELU > Dropout .5 > Linear 512 > BN > GELU "
            "> Dropout .5 > Linear classes",
            weaknesses=(
                "Made for a network's features: on pixels it learns little more than a line does.",
                "Its BatchNorm statistics describe the encodings it was trained on: on clean "
                "features it can look worse than its weights are (see `bn_recomputed`).",
            ),
            example="harness evaluate --space vgg16 --victim 'paper-head[epochs=20]'",
        )
    ]

"""The classifier of the singularized-mixup paper."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.api import BatchSize, Cut, Epochs, Recipe, VictimSpec, hookimpl


class PaperHeadConfig(Recipe):
    """The paper's training: AdamW, cosine schedule, batches of 128 (appendix E)."""

    epochs: Epochs = 20
    batch_size: Annotated[
        BatchSize, Field(ge=2, description="images per step; BatchNorm needs two")
    ] = 128
    cut: Cut = "hidden1"


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
            factory="harness_plugins.victims.paper_head.network:PaperHead",
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

"""The classifier of the singularized-mixup paper."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Recipe, VictimSpec, hookimpl


class PaperHeadConfig(Recipe):
    """The paper's training: AdamW, cosine schedule, batches of 128 (appendix E)."""

    epochs: int = Field(20, ge=1, description="passes over the release; the paper: 200")
    batch_size: int = Field(128, ge=2, description="images per step; BatchNorm needs two")
    optimizer: Literal["adamw", "adam", "sgd"] = Field("adamw", description="sgd: momentum .9")
    lr: float = Field(1e-3, gt=0, le=10, allow_inf_nan=False, description="initial learning rate")
    weight_decay: float = Field(
        1e-4, ge=0, le=10, allow_inf_nan=False, description="as the optimiser understands it"
    )
    cut: str = Field("hidden1", description="name of the last block of h, the part before the cut")


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
                "features it can look worse than its weights are (see accuracy_bn_recomputed).",
            ),
            example="--space vgg16 --victim 'paper-head[epochs=20]'",
        )
    ]

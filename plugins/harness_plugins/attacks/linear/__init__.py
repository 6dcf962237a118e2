"""`linear`: least squares on the known mixture, by gradient descent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl
from harness_plugins.mixtures import MIXTURE

_PAPER: dict[str, Any] = {"steps": 200, "lr": 0.05, "lambda_tv": 1e-3, "lambda_2": 1e-4}


class LinearConfig(Config):
    """The descent and its priors; the ridge regression where features are released."""

    steps: int = Field(default=200, ge=1, le=100_000, description="steps of Adam")
    lr: float = Field(default=0.05, gt=0, description="learning rate of Adam")
    lambda_tv: float = Field(
        default=1e-3, ge=0, description="weight of the mean absolute difference of neighbours"
    )
    lambda_2: float = Field(default=1e-4, ge=0, description="weight of the mean square")
    ridge_images: int = Field(
        default=4000, ge=10, le=50_000, description="public images that features are learned from"
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The paper's linear attack."""
    return [
        AttackSpec(
            name="linear",
            version="2",
            summary="inverts the known mixture by Adam with total variation and L2 penalties",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "section 5 and appendix F, table 1",
            factory="harness_plugins.attacks.linear.invert:Linear",
            config=LinearConfig,
            needs=(
                MIXTURE,
                frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER, Channel.PUBLIC}),
            ),
            linear="yes",
            effort="steps",
            controls=(
                Control("none", "fashion-mini", "snr_db", 30.0),
                Control("singmix[radius=0]", "fashion-mini", "snr_db", 15.0),
            ),
            presets={"paper": _PAPER},
            formula=(
                "min over X in the valid range of mean((X~ - W X)^2) + lambda_tv mean|grad X| "
                "+ lambda_2 mean(X^2), from zeros;\n"
                "  times n/64, so that Adam's eps weighs in any release as in one of 64 images\n"
                "features: ridge regression from h(public) to public images"
            ),
            weaknesses=(
                "under much noise the clamp fills images with extremes: below 0 dB, where zeros "
                "would score 0",
                "has no prior but smoothness, and ignores how much noise each row carries",
            ),
            example="harness evaluate --attack 'linear[steps=500]'",
        )
    ]

"""`network`: the victim that the evaluation names, trained on the release."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, Control, LearnerSpec, hookimpl
from harness_plugins.learners.known_signal import KNOWN, SIZES


class NetworkConfig(Config):
    """How the victim is changed; its recipe is its own."""

    batchnorm: Literal["keep", "avoid"] = Field(
        "keep",
        description="keep: statistics are recomputed on public images after training; avoid: "
        "a GroupNorm in place of each BatchNorm",
    )


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="network",
            version="1",
            bfloat16=True,
            summary="the victim, trained by its recipe on encodings brought to unit deviation",
            reference="Ioffe & Szegedy 2015, arXiv:1502.03167, with statistics of the images that "
            "are asked about (AdaBN: Li et al. 2017, arXiv:1603.04779); Wu & He 2018, "
            "arXiv:1803.08494, for GroupNorm",
            factory="harness_plugins.learners.network.learner:Network",
            config=NetworkConfig,
            controls=(
                Control("none", "fashion-mini", "accuracy", 0.75),
                Control("singmix[tau=1]", KNOWN, "share", 0.85, SIZES),
            ),
            formula="f(x~ / s) by the victim's recipe, epoch e on round e mod T, s the deviation "
            "of the release; logit_c(x) = (f_c(x / s) - mean) / deviation + log p_c, mean and "
            "deviation of f_c over public images, p_c the share of class c in the soft labels, "
            "where encodings are no plain images; absolute values where signs are random",
            weaknesses=(
                "where noise is far above the images it finds less than the sums of closed forms",
                "one round is held at a time: n images of d values have to fit in memory",
            ),
            example="harness evaluate --defense 'singmix[tau=1]' --learner network --victim mlp",
        )
    ]

"""`gradnoise`: noise on every entry of a gradient."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl


class GradnoiseConfig(Config):
    """What noise, and how much of it."""

    kind: Literal["gaussian", "laplace"] = Field("gaussian", description="law of the noise")
    scale: float = Field(
        1e-2,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="standard deviation of the noise on each entry, for either law "
        "(a Laplace parameter of scale/√2)",
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Noisy gradients."""
    return [
        DefenseSpec(
            name="gradnoise",
            version="1",
            summary="noise of one deviation on every entry of every gradient",
            reference="Zhu, Liu & Han 2019, Deep Leakage from Gradients, arXiv:1906.08935, "
            "section 5.1",
            factory="harness_plugins.defenses.gradnoise.noise:Gradnoise",
            config=GradnoiseConfig,
            stage=Stage.GRADIENT,
            no_ceiling=(
                "gradients have no bound, and without a clipping norm noise on them proves nothing"
            ),
            formula=(
                "g~ = g + e,  e independent for each entry, E[e] = 0, E[e^2] = scale^2\n"
                "gaussian: e = scale N(0,1);  laplace: density exp(-sqrt(2) |e| / scale) "
                "/ (sqrt(2) scale)"
            ),
            weaknesses=(
                "gradients are not clipped, so there is no privacy guarantee: an image with a "
                "large gradient stands out of any noise (see dpsgd)",
                "large tensors with few large entries are hardly hidden, small late ones drown",
                "noise averages away over the steps in which an image takes part",
            ),
            example="harness evaluate --defense 'gradnoise[kind=laplace,scale=1e-3]'",
        )
    ]

"""`noise`: every image is faded and covered with random noise of its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl


class NoiseConfig(Config):
    """How far images fade, and what covers them."""

    kind: Literal["laplace", "gaussian"] = Field(
        default="laplace",
        description="independent Laplace noise, or normal noise of the same expected energy",
    )
    alpha: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="coefficient of perturbation: 1 - alpha of the image stays",
    )
    scale: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        allow_inf_nan=False,
        description="scale b of the Laplace noise, used instead of alpha · mean|x|; normal noise "
        "has deviation sqrt(2) b",
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """The random noise that InstaHide is compared with."""
    return [
        DefenseSpec(
            name="noise",
            version="1",
            summary="random noise: a faded image plus independent noise as large as what went",
            reference="Huang et al., InstaHide, 2020, section 5.2 and figure 4 (comparison with "
            "adding random noise; alpha of .1 to .9, Laplace)",
            factory="harness_plugins.defenses.noise.encode:Noise",
            config=NoiseConfig,
            stage=Stage.ENCODING,
            formula=(
                "x~_i = (1 - alpha) x_i + e_i,  y~_i = y_i\n"
                "laplace: e of scale b = alpha mean|x|, so that E||e||_1 = d b = E||alpha x_j||_1, "
                "x_j a random private image of d numbers\n"
                "gaussian: e of deviation sqrt(2) b, so that E||e||_2^2 = 2 d b^2 as for laplace"
            ),
            weaknesses=(
                "the noise is drawn afresh each round: averaging T rounds divides its energy by T",
                "neighbouring pixels are alike and their noise is not: any denoiser gains",
                "labels are released as they are, and with them the class mean",
                "no promise of differential privacy: the images' range is not bounded by the scale",
            ),
            example="harness evaluate --defense 'noise[kind=laplace,alpha=.5]'",
        )
    ]

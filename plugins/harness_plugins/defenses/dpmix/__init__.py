"""`dpmix`: noisy mixtures of random images, with a proven privacy budget."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl


class DpmixConfig(Config):
    """The budget, and how many images are mixed."""

    epsilon: float = Field(default=8.0, gt=0, le=1000, description="privacy budget of the release")
    delta: float = Field(
        default=1e-5, gt=0, lt=1, description="chance in which the budget may not hold"
    )
    rounds: int = Field(
        default=1, ge=1, le=100_000, description="rounds that share the budget: those that leave"
    )
    m: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="images expected in a row; unset: mu sqrt(n / rounds) / 2, which learned best "
        "from public images: of fewer, privacy gets dear exponentially, and more blur each other "
        "under the same noise",
    )
    clip: float = Field(
        default=1.0,
        gt=0,
        le=1e6,
        description="norm that no image exceeds, in units of the median norm of public images",
    )
    norm: float | None = Field(
        default=None, gt=0, le=1e9, description="that norm itself, used instead of clip"
    )
    noise: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="deviation of the noise over the sensitivity, used instead of epsilon",
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Noisy mixtures."""
    return [
        DefenseSpec(
            name="dpmix",
            version="1",
            summary="means of random images with Gaussian noise on image and label: private",
            reference="Lee et al., Synthesizing Differentially Private Datasets using Random "
            "Mixing, 2019 (DPMix); Li et al., NeuroMixGDP, 2022; accounting by Opacus",
            factory="harness_plugins.defenses.dpmix.mixing:Dpmix",
            config=DpmixConfig,
            stage=Stage.ENCODING,
            formula=(
                "x~_i = (sum of clip_C(x_j) over S_i + sqrt(2) C s N(0, I)) / m\n"
                "y~_i = ((sum of y_j over S_i + sqrt(2) s N(0, I)) / m), put where labels may be\n"
                "S_i holds each image with probability m / n;  n rows a round\n"
                "s: the smallest that the PRV accountant finds to spend epsilon at delta over all "
                "rows; one image adds a vector of norm sqrt(2) at most to (x / C, y)"
            ),
            weaknesses=(
                "the budget counts `rounds` of rows: of more it proves less",
                "neighbours differ by one image more or less, not by one replaced",
                "each row spends budget on a draw of images: class sums spend it once",
                "noisy labels are moved to where labels may be, which shrinks them",
                "noise is drawn in floating point, whose gaps the proof does not know",
            ),
            example="harness evaluate --defense 'dpmix[epsilon=8]' --attack lmmse",
        )
    ]

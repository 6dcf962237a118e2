"""`dpmeans`: noisy class sums, a release with a proven privacy budget."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl


class DpmeansConfig(Config):
    """The budget, and what is summed of an image."""

    epsilon: float = Field(default=2.0, gt=0, le=1e4, description="privacy budget of the release")
    delta: float = Field(
        default=1e-5, gt=0, lt=1, description="chance in which the budget may not hold"
    )
    components: int = Field(
        default=256, ge=1, le=4096, description="principal components of public images, at most"
    )
    whiten: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="power of a component's public variance that divides it: 1 whitens; a quarter, "
        "which learned best from public images, leaves less to the noise in the many small ones",
    )
    clip: float = Field(
        default=0.5,
        gt=0,
        le=1e6,
        description="norm that no image's row exceeds, in units of the median norm of public rows",
    )
    pool: Literal["auto", "yes", "no"] = Field(
        default="auto",
        description="average over positions first; auto: of maps with more channels than positions",
    )
    counts: Literal["noised", "public"] = Field(
        default="noised",
        description="class sizes leave with noise, at no cost to the sums, or in clear, and then "
        "the budget is for replacing an image by another of its class",
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Noisy class sums."""
    return [
        DefenseSpec(
            name="dpmeans",
            version="1",
            summary="class sums of clipped rows with Gaussian noise: differentially private",
            reference="the analytic Gaussian mechanism, Balle and Wang, Improving the Gaussian "
            "Mechanism for Differential Privacy, 2018, theorem 8",
            factory="harness_plugins.defenses.dpmeans.sums:Dpmeans",
            config=DpmeansConfig,
            stage=Stage.STATISTICS,
            formula=(
                "z_i = clip_C(W (pool(x_i) - m)),  m and W from public images alone\n"
                "S_c = sum of z_i over class c + N(0, (C s)^2 I),  n_c + N(0, s^2),  s = 2 / mu\n"
                "mu: the largest with delta(mu, epsilon) <= delta (Balle and Wang)\n"
                "replacing one image moves (S / C, n) by at most 2: within a class by ||z - z'|| / "
                "C; across classes by sqrt(1 + 1 + 1 + 1)"
            ),
            weaknesses=(
                "it says of each class one point: what only a network sees in images is lost",
                "the noise is the same whatever the number of images: a thousand are few",
                "a second release spends a second budget",
                "noise is drawn in floating point, whose gaps the proof does not know",
            ),
            example="harness evaluate --defense 'dpmeans[epsilon=2]' --attack classsums",
        )
    ]

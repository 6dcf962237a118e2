"""`dp`: what can be told of one image by whoever knows all the others, and all that is drawn."""

from __future__ import annotations

from pydantic import Field

from harness.api import CeilingSpec, Config, hookimpl


class DpConfig(Config):
    """At which delta, and against which prior chance."""

    delta: float = Field(
        default=1e-5,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="failure probability of the guarantee, above 0: normal noise has no epsilon "
        "without one",
    )
    chance: float = Field(
        default=1e-4,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="probability of a reconstruction that an attacker has without the release",
    )


@hookimpl
def harness_ceilings() -> list[CeilingSpec]:
    """Gaussian differential privacy of an encoding."""
    return [
        CeilingSpec(
            name="dp",
            version="1",
            summary="differential privacy of one image in all its rows: mu, epsilon at a delta, "
            "and the best chance of a reconstruction",
            reference="Dong, Roth and Su, Gaussian Differential Privacy, 2022; Balle and Wang, "
            "Improving the Gaussian Mechanism, 2018, theorem 8; Hayes, Mahloujifar and Balle, "
            "Bounding Training Data Reconstruction in DP-SGD, 2023",
            factory="harness_plugins.ceilings.dp.ceiling:DifferentialPrivacy",
            config=DpConfig,
            formula=(
                "mu = D sqrt(T q),  D^2 = sum over values of (1 / std)^2 for images in [0,1],\n"
                "q the most that one round may tell: the largest sum over rows of (c_i / s_i)^2\n"
                "delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)\n"
                "a hit of prior probability k has at most Phi(Phi^-1(k) + mu)"
            ),
            weaknesses=(
                "it is of the worst pair of images: black against white",
                "it says nothing where the radius was measured on private images",
                "noise is rounded to float32, which the proof leaves out",
            ),
            example="harness ceiling --ceiling 'dp[delta=1e-6]' --dataset fashion-mini --defense "
            "'singmix[tau=1e-6,noise=gaussian,calibrate=public]'",
        )
    ]

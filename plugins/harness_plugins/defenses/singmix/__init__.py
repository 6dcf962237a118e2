"""`singmix`: singularized mixup, two private images and noise on the second."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl

First = Literal["any", "larger"]
FixedPoints = Literal["yes", "no"]


class SingmixConfig(Config):
    """How strongly images are mixed and how much noise covers the partner."""

    tau: float = Field(
        default=1e-4,
        gt=0,
        allow_inf_nan=False,
        description="bound on the signal-to-noise ratio of an encoding; sets the noise radius "
        "by theorem 4.2",
    )
    radius: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="noise radius, used instead of tau; 0 mixes without noise",
    )
    alpha: float = Field(
        default=0.65,
        ge=0.5,
        lt=1,
        description="largest weight an image may get; the paper gives no value",
    )
    first: First = Field(
        default="any",
        description="which weight is the image's own, and not its partner's: any, as in algorithm "
        "1, or the larger one",
    )
    noise: Literal["sphere", "gaussian"] = Field(
        default="sphere",
        description="uniform on the sphere, or gaussian with the same expected energy",
    )
    calibrate: Literal["private", "public"] = Field(
        default="private",
        description="whose spread sets the radius of a tau: theorem 4.2 takes the private images', "
        "which tells a little of them; public ones' tells nothing. Of no matter with a radius",
    )
    fixed_points: FixedPoints = Field(
        default="yes",
        description="whether an image may be its own partner, as in algorithm 1; no: orders with "
        "such an image are drawn again",
    )
    resolution: int | None = Field(
        default=None, ge=1, le=1024, description="resize images to this many pixels first"
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Singularized mixup."""
    return [
        DefenseSpec(
            name="singmix",
            version="1",
            summary="singularized mixup: two private images, noise added to the second",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "algorithm 1; radius by theorem 4.2; T_i by theorem 4.1",
            factory="harness_plugins.defenses.singmix.encode:Singmix",
            config=SingmixConfig,
            stage=Stage.ENCODING,
            presets={"paper": {"tau": 1e-6}, "upsampled": {"resolution": 224}},
            formula=(
                "x~_i = w_i x_i + (1 - w_i)(x_pi(i) + e_i),  ||e_i|| = r,  w_i <= alpha\n"
                "y~_i = w_i y_i + (1 - w_i) y_pi(i)\n"
                "r = m_f D,  m_f = sqrt((alpha^2 / (tau (1 - alpha)^2) - 1) / (2 c)),  "
                "c = D^2 / (2 V)"
            ),
            weaknesses=(
                "noise of an exact norm identifies both images of a mixture among candidates",
                "the norm of an encoding tells its weights, and so which label is the image's own",
                "noise added after upsampling is mostly outside the images' subspace",
                "an image that is its own partner is not mixed: it is seen under the least noise",
                "every further encoding of the same images averages noise away",
                "soft labels tell the class, and with it the class mean",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]'",
        )
    ]

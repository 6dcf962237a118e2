"""`prior`: message passing between the known mixture and a denoiser learned from public images."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.api import AttackSpec, Channel, Control, Preparation, hookimpl
from harness_plugins.mixtures import KNOWN_LAW, PRIOR_BY_OPTION
from harness_plugins.mixtures.options import OfPrior

DENOISER = Preparation(
    "denoiser",
    "harness_plugins.attacks.prior.denoiser:learn_denoiser",
    frozenset({Channel.PUBLIC}),
    options=("epochs", "base", "images"),
)
"""A denoiser of the public images, for white noise of any level: one for all defenses."""

_QUICK: dict[str, Any] = {"base": 12, "epochs": 4, "images": 4_000}
_STANDARD: dict[str, Any] = {"base": 16, "epochs": 6, "images": 20_000}
_PAPER: dict[str, Any] = {"base": 48, "epochs": 40, "images": 100_000}
_CONTROL: dict[str, Any] = {"private_size": 200, "public_size": 1500}


class PriorConfig(OfPrior):
    """How images are modelled; the denoiser, and how often it is asked."""

    steps: int = Field(
        default=12, ge=0, le=100, description="turns of denoising and solving, at the most"
    )
    base: int = Field(default=16, ge=4, le=256, description="channels of the U-Net's first level")
    epochs: int = Field(
        default=6, ge=0, le=1000, description="passes over the public images, with new noise each"
    )
    images: int = Field(default=20_000, ge=2, description="public images to train on, at the most")


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The plug-and-play attack."""
    return [
        AttackSpec(
            name="prior",
            version="1",
            bfloat16=True,
            summary="lmmse, then turns of solving the mixture and denoising by a learned prior",
            reference="plug-and-play priors (Venkatakrishnan et al. 2013) by expectation "
            "propagation: Rangan, Schniter and Fletcher, Vector Approximate Message Passing, "
            "algorithm 1, with a variance for each image; denoiser: Zhang et al., Plug-and-Play "
            "Image Restoration with Deep Denoiser Prior, section III",
            factory="harness_plugins.attacks.prior.attack:PriorAttack",
            config=PriorConfig,
            needs=(KNOWN_LAW,),
            optional=frozenset({Channel.LABELS}),
            preparations=(PRIOR_BY_OPTION, DENOISER),
            effort="epochs",
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0, options=_CONTROL),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 40.0, options=_CONTROL),
                Control("singmix[tau=1]", "fashion-mini", "snr_db", 9.2, options=_CONTROL),
            ),
            presets={"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER},
            formula=(
                "in turns, from x^ of lmmse, with v_i the variance of what is held of image i "
                "beside its rows:\n"
                "  m   = argmin (X~ - W X)' N^-1 (X~ - W X) + sum_i |x_i - z_i|^2 / v_i\n"
                "  r_i = m_i + (m_i - z_i) / (v_i p_i),  what the rows say alone: x_i + white "
                "noise of variance 1/p_i\n"
                "  x^_i = D(r_i, 1/p_i),  e_i its expected error\n"
                "  1/v_i = 1/e_i - p_i,  z_i = x^_i + v_i p_i (x^_i - r_i)\n"
                "p by belief propagation on the variances. Answer: lmmse + s (x^ - lmmse), s in "
                "[0,1] for each of four levels of noise, and the number of turns, chosen on "
                "held-out public images that the attacker encodes itself"
            ),
            weaknesses=(
                "only as good as the public images resemble the private ones",
                "the errors of an image's partners are taken to be white",
                "pictures of at least 8x8 only: there is no denoiser for feature maps",
                "random signs leave no linear trace: the answer is then that of lmmse",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-1]' --attack 'prior[epochs=10]'",
        )
    ]

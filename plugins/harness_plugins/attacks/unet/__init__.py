"""`unet`: a denoiser trained on public images under the defense's own law."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl
from harness_plugins.mixtures import CLASS_PRIOR

_PAPER: dict[str, Any] = {
    "variant": "paper",
    "base": 48,
    "epochs": 30,
    "batch": 32,
    "lr": 1e-3,
    "images": 100_000,
}
_STANDARD: dict[str, Any] = {"base": 24, "epochs": 4, "batch": 64, "images": 20_000}
_QUICK: dict[str, Any] = {"base": 16, "epochs": 2, "batch": 64, "images": 4_000}
_CONTROL: dict[str, Any] = {"private_size": 200, "public_size": 1500}


class UNetConfig(Config):
    """The network and its training."""

    variant: Literal["conditioned", "paper"] = Field(
        default="conditioned",
        description="conditioned knows weights, labels and noise level and corrects the linear "
        "estimate; paper maps a bare encoding to an image",
    )
    base: int = Field(default=24, ge=4, le=256, description="channels of the first level")
    epochs: int = Field(
        default=4, ge=0, le=1000, description="passes over the public images, encoded anew each"
    )
    batch: int = Field(default=64, ge=1, le=4096, description="images in a step")
    lr: float = Field(default=2e-3, gt=0, description="learning rate of Adam")
    images: int = Field(default=20_000, ge=20, description="public images to train on, at the most")


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The nonlinear attack."""
    return [
        AttackSpec(
            name="unet",
            version="1",
            bfloat16=True,
            summary="a U-Net trained on public images, encoded by the defense's own law",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "section 5 and appendix F, table 2",
            factory="harness_plugins.attacks.unet.attack:UNetAttack",
            config=UNetConfig,
            needs=(
                frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.ENCODER}),
                frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER, Channel.PUBLIC}),
            ),
            optional=frozenset(
                {Channel.WEIGHTS, Channel.SOURCES, Channel.LABELS, Channel.N_PRIVATE}
            ),
            preparations=(CLASS_PRIOR,),
            effort="epochs",
            controls=(
                Control("none", "fashion-mini", "snr_db", 15.0, options=_CONTROL),
                Control("singmix[tau=1]", "fashion-mini", "snr_db", 8.0, options=_CONTROL),
            ),
            presets={"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER},
            formula=(
                "conditioned: x^ = class mean + s_1 linear + s_2 net(linear, matched filter, "
                "|x~|, class mean, w, log noise, labels);\n"
                "  loss = mean over images of log ||x^ - x||^2, which is -SNR; s_1, s_2 in [0,1] "
                "and the epoch chosen on held-out public images\n"
                "paper: x^ = clamp(net(x~)), loss = L1 + 1e-4 TV"
            ),
            weaknesses=(
                "only as good as the public images resemble the private ones",
                "paper: inputs far from unit scale and no knowledge of the weights, so it "
                "collapses under strong noise",
            ),
            example="harness evaluate --attack 'unet[base=32,epochs=10]'",
        )
    ]

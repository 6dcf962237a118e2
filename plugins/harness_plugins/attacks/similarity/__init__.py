"""`similarity`: which candidates look like an encoding, by formula or by a trained eye."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

_QUICK: dict[str, Any] = {"steps": 200, "images": 4000, "rows": 500, "stride": 4}
_STANDARD: dict[str, Any] = {"steps": 2000, "images": 20_000, "rows": 5000, "stride": 2}
_PAPER: dict[str, Any] = {"steps": 20_000, "images": 100_000, "rows": 100_000, "stride": 1}


class SimilarityConfig(Config):
    """How likeness is measured."""

    by: Literal["learned", "ssim"] = Field(
        default="learned",
        description="learned: two networks that bring an encoding and its images close together, "
        "trained on public images under the defense's law; ssim: structural similarity",
    )
    steps: int = Field(
        default=2000, ge=1, le=1_000_000, description="training steps of the networks"
    )
    batch: int = Field(default=192, ge=8, le=8192, description="pairs in a step")
    lr: float = Field(default=2e-3, gt=0, le=1, description="learning rate of Adam")
    images: int = Field(
        default=20_000, ge=20, le=10_000_000, description="public images to train on, at the most"
    )
    rows: int = Field(
        default=5000,
        ge=1,
        le=10_000_000,
        description="encodings scored at the most, from the first",
    )
    stride: int = Field(
        default=1, ge=1, le=64, description="of SSIM's windows; 1 is SSIM itself, more a part of it"
    )
    values: Literal["auto", "signed", "absolute"] = Field(
        default="auto",
        description="what SSIM compares; auto: absolute values where encodings of public images "
        "show that signs are hidden",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Search by similarity."""
    return [
        AttackSpec(
            name="similarity",
            version="1",
            summary="finds the images of a mixture in a list by SSIM or a learned embedding",
            reference="Huang et al., InstaHide, 2020, section 5.3 (search by SSIM, and by a deep "
            "model); van den Oord et al. 2018, Representation Learning with Contrastive Predictive "
            "Coding, equation 4 (InfoNCE)",
            factory="harness_plugins.attacks.similarity.attack:Similarity",
            config=SimilarityConfig,
            needs=(
                frozenset({Channel.ENCODINGS, Channel.CANDIDATES, Channel.PUBLIC, Channel.ENCODER}),
            ),
            presets={"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER},
            effort="steps",
            controls=(
                Control(
                    "instahide[k=2]",
                    "fashion-mini",
                    "identification.auc",
                    0.8,
                    options={
                        "threat_model": "candidates",
                        "private_size": 200,
                        "public_size": 2000,
                    },
                ),
            ),
            formula=(
                "learned: score = <f(x~, |x~|), g(s, |s|)>, f and g of unit length, trained by "
                "InfoNCE on (encoding, image) pairs of public images; an image that is in a "
                "batch's other encodings counts by its weight there\n"
                "ssim: mean over Gaussian windows of Wang et al. 2004, equation 13, of the "
                "encoding brought to unit energy, in [0,1]"
            ),
            weaknesses=(
                "learned: as good as its training is long, and as public images resemble private "
                "ones",
                "ssim: sees only what is in its place; blind to images cropped or flipped before "
                "mixing, and to faint ones",
                "uses neither weights nor sources, and one encoding at a time",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --attack 'similarity[by=learned]' "
            "--threat-model candidates",
        )
    ]

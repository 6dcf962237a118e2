"""`luo`: encodings clustered, then each cluster fused and denoised by learned networks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Control, Preparation, hookimpl
from harness_plugins.clusters import PAIRS, PUBLISHED, PairConfig

_LAW = frozenset({Channel.PUBLIC, Channel.ENCODER})

COMPARATIVE = Preparation(
    "comparative",
    "harness_plugins.attacks.luo.comparative:learn",
    _LAW,
    options=("compare_features", "compare_steps", "compare_rate", "pair_images"),
)
"""The paper's own similarity: a `comparative.Comparer`."""

CLASSWISE = Preparation(
    "classwise",
    "harness_plugins.attacks.luo.classwise:learn",
    _LAW,
    options=("compare_steps", "compare_rate", "pair_images"),
)
"""A likeness learned within classes: a `classwise.Classwise`."""


class LuoConfig(PairConfig):
    """How encodings are compared, and how large the networks are that make images of clusters."""

    similarity: Literal["embedding", "classwise", "comparative"] = Field(
        default="embedding",
        description="embedding: the pair embedding that all clustering attacks share; classwise: "
        "an embedding that learns among images of one class, and comes further where images are "
        "moved; comparative: the paper's network of two resolutions",
    )
    compare_features: int = Field(
        default=32, ge=4, le=512, description="channels of each branch of the comparative network"
    )
    compare_steps: int = Field(
        default=300,
        ge=1,
        le=1_000_000,
        description="training steps of a likeness of the attack's own",
    )
    compare_rate: float = Field(
        default=2e-3, gt=0, le=1, description="learning rate of a likeness of the attack's own"
    )
    members: int = Field(
        default=12,
        ge=1,
        le=1000,
        description="most encodings of a cluster that are fused: those in which the image weighs "
        "most",
    )
    impure: float = Field(
        default=0.25,
        ge=0,
        le=0.9,
        description="share of wrong members, on the mean, in the clusters that fusion learns from",
    )
    fusion_steps: int = Field(
        default=600, ge=1, le=1_000_000, description="training steps of fusion and denoiser"
    )
    fusion_rate: float = Field(
        default=1.5e-3, gt=0, le=1, description="learning rate of fusion and denoiser"
    )
    fusion_base: int = Field(default=24, ge=4, le=512, description="channels of the fusion network")
    groups: int = Field(
        default=2, ge=0, le=64, description="attention groups of the denoiser; 0 leaves it out"
    )
    width: int = Field(default=24, ge=4, le=512, description="channels of the denoiser")
    tile: Literal[1, 2, 4] = Field(
        default=2, description="side of the tiles of pixels that the denoiser works on"
    )

    def unprepared(self) -> frozenset[str]:
        """Likenesses that are not the one asked for."""
        likenesses = {"embedding": PAIRS, "classwise": CLASSWISE, "comparative": COMPARATIVE}
        return frozenset(made.name for name, made in likenesses.items() if name != self.similarity)


_PAPER: dict[str, Any] = {
    "similarity": "comparative",
    "compare_features": 96,
    "compare_steps": 50_000,
    "compare_rate": 1e-4,
    "fusion_steps": 80_000,
    "fusion_rate": 1e-4,
    "fusion_base": 64,
    "groups": 6,
    "width": 48,
    "tile": 1,
    "pair_images": 100_000,
}
_QUICK: dict[str, Any] = {
    "pair_steps": 60,
    "pair_batch": 96,
    "compare_steps": 100,
    "fusion_steps": 100,
    "fusion_base": 16,
    "width": 16,
    "groups": 1,
}
_CONTROL: dict[str, Any] = {"private_size": 100, "public_size": 4000, "rounds": 10}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The fusion-denoising attack."""
    return [
        AttackSpec(
            name="luo",
            version="1",
            summary="clusters encodings, then fuses and denoises each cluster by learned networks",
            reference="Luo et al., A Fusion-Denoising Attack on InstaHide with Data Augmentation, "
            "AAAI 2022; retold in Augmented Mixup Procedure for Privacy-Preserving Collaborative "
            "Training, appendix B",
            factory="harness_plugins.attacks.luo.attack:Luo",
            config=LuoConfig,
            needs=(PUBLISHED,),
            fewest_rounds=2,
            preparations=(PAIRS, COMPARATIVE, CLASSWISE),
            effort="fusion_steps",
            presets={"quick": _QUICK, "standard": {}, "paper": _PAPER},
            controls=(Control("instahide[k=2]", "fashion-mini", "ssim", 0.45, options=_CONTROL),),
            formula=(
                "places: f(|x~_i| / l_i), l_i the largest weight in label i; neighbour sets and "
                "k-medoids among encodings of one leading label, as many clusters as the labels "
                "say the class has images\n"
                "comparative: odds_ij = sum_c w_c cos(f_c(x_i), f_c(x_j)) - b, w_c >= 0, c over 2 "
                "resolutions; classwise: InfoNCE of encodings and images of one class\n"
                "x^_c = denoise(fuse({|x~_i| / l_i, place_i : i in c})), of the members with the "
                "least ((1 - l_i) / l_i)^2; where signs are not hidden x~_i itself\n"
                "loss = .3 L1 - .7 SSIM, of clusters of public images, a share of members wrong"
            ),
            weaknesses=(
                "an encoding serves only the image that leads in it: half of what was released "
                "is noise to it",
                "moved images are told apart within their class only by long training; wrong "
                "clusters become images like the mean of their class",
                "trained for SSIM, it scores above the class mean whatever is in a cluster: what "
                "the release tells is public_ssim less public_ssim_of_class, not the gain",
                "signs are guessed with the image, not solved for: where images are not moved, "
                "attacks that solve the mixture see more",
            ),
            example="harness evaluate --defense 'instahide[k=2,augment=affine]' --rounds 50 "
            "--attack luo",
        )
    ]

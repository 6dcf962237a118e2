"""`instahide`: images mixed with others, then every sign flipped by a fair coin."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from harness.api import Config, DefenseSpec, Stage, hookimpl

_OWN = 2  # private images of a cross-dataset mixture (section 3.2)


class InstaHideConfig(Config):
    """How many images are mixed, whose they are, and where the masks come from."""

    k: int = Field(
        default=4, ge=1, le=16, description="images in one mixture; 1 masks without mixing"
    )
    scheme: Literal["inside", "cross"] = Field(
        default="inside",
        description="inside: k private images; cross: two private ones and k-2 public patches, "
        "whose labels are not mixed",
    )
    max_weight: float = Field(
        default=0.65,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="largest weight an image may get (c1), above 1/k; no matter where k=1",
    )
    min_private: float = Field(
        default=0.3,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="least sum of the two private weights of a cross mixture (c2), at most "
        "2 max_weight",
    )
    weights: Literal["uniform", "half-normal"] = Field(
        default="uniform",
        description="law of the weights before they are normalised: the paper's text, or |N(0,1)| "
        "of the official code",
    )
    augment: Literal["none", "crop-flip", "affine"] = Field(
        default="none",
        description="what private images go through before each round: a crop out of 4 pixels of "
        "black padding and a flip, or rotation to 90 degrees, translation to half a side and a "
        "resized crop; images of 1 or 3 channels only, black is each channel's minimum",
    )
    infer: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="encodings of a test image whose predictions are averaged; 0 asks the model "
        "about the image itself",
    )
    prng: Literal["shake256", "mt19937"] = Field(
        default="shake256",
        description="where masks come from; mt19937 is weak on purpose: a Mersenne twister with a "
        "32-bit seed, as in the challenge that fell",
    )

    @property
    def privates(self) -> int:
        """How many images of one mixture are private; they come first."""
        return self.k if self.scheme == "inside" else _OWN

    @model_validator(mode="after")
    def _can_be_met(self) -> InstaHideConfig:
        """A law that some draw can meet."""
        if self.scheme == "cross" and self.k <= _OWN:
            raise ValueError(
                f"scheme=cross mixes {_OWN} private images with k-{_OWN} public ones: k must be at "
                f"least {_OWN + 1}, not {self.k}; two private images alone are scheme=inside, k=2"
            )
        if self.k > 1 and self.max_weight <= 1 / self.k:
            raise ValueError(
                f"max_weight must be above 1/k = {1 / self.k:.4g}, not {self.max_weight:g}: "
                f"the largest of k={self.k} weights that sum to 1 is never less"
            )
        if self.scheme == "cross" and self.min_private > _OWN * self.max_weight:
            raise ValueError(
                f"min_private must be at most 2 max_weight = {_OWN * self.max_weight:g}, not "
                f"{self.min_private:g}: two private weights never sum to more"
            )
        return self


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """InstaHide, inside a dataset and across two."""
    return [
        DefenseSpec(
            name="instahide",
            version="1",
            summary="InstaHide: k images mixed, then a fresh random sign on every value",
            reference="InstaHide: Instance-hiding Schemes for Private Distributed Learning, "
            "algorithm 2, sections 3.1 to 3.3 and 5.1; |N(0,1)| weights and crop-flip by its "
            "official code; affine augmentation as attacked by Luo et al. (Fusion-Denoising)",
            factory="harness_plugins.defenses.instahide.encode:InstaHide",
            config=InstaHideConfig,
            stage=Stage.ENCODING,
            hides_signs=True,
            presets={
                "paper": {"augment": "crop-flip"},
                "challenge": {
                    "k": 6,
                    "scheme": "cross",
                    "weights": "half-normal",
                    "augment": "crop-flip",
                },
            },
            formula=(
                "x~_i = s_i o sum_j w_ij x_j(i),  s_i in {-1,+1}^d,  sum_j w_ij = 1,  "
                "w_ij <= max_weight\n"
                "inside: j(i) are k private images, x_i first, y~_i = sum_j w_ij y_j(i)\n"
                "cross: two private images and k-2 public patches, w_i1 + w_i2 >= min_private, "
                "y~_i = w_i1 y_i + w_i2 y_2(i), not renormalised\n"
                "patches: fresh windows of 1/2 to all of a side, resized to the whole; a texture "
                "filter stands in for the paper's (more than 40 SIFT key points): mean squared "
                "gradient at least 1/4 of the public pool's median, else redrawn\n"
                "infer: log of the mean softmax over encodings of the test image, which takes the "
                "primary image's place"
            ),
            weaknesses=(
                "absolute values are the mixture but for signs: the mask hides one bit a value, "
                "and a network trained on public images guesses most of them",
                "encodings of one image, over rounds or as each other's partners, can be told "
                "from the rest and clustered; enough of them are solved for the images",
                "the soft label tells the weights of its classes, and who is likely mixed",
                "public images of a cross mixture can be searched for, and subtracted",
                "k=1 masks alone: |x| of one image is released",
                "prng=mt19937: all 2^32 seeds can be tried, and one gives every mask of the "
                "round; InstaHide's own challenge fell to a seedable Mersenne twister",
                "no proof holds: security rests on a conjecture on vector sums that Carlini et "
                "al. and Chen et al. went around",
            ),
            example="harness evaluate --defense 'instahide[k=6,scheme=cross]'",
        )
    ]

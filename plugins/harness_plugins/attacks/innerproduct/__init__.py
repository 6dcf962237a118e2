"""`innerproduct`: which candidates point the way an encoding does."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl
from harness_plugins.mixtures import PRIOR


class InnerProductConfig(Config):
    """What is done to both sides before they are multiplied."""

    whiten: bool = Field(
        default=True,
        description="centre both sides on the public mean and put the inverse of the public "
        "covariance between them; else compare values as they are",
    )
    normalise: bool = Field(
        default=True,
        description="divide by each candidate's length, so that images of much contrast do not "
        "come first everywhere; without whitening also centre each image on its own mean",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Inner products with candidates."""
    return [
        AttackSpec(
            name="innerproduct",
            version="1",
            summary="finds the images of a mixture in a list by inner products, whitened or raw",
            reference="Huang et al., InstaHide, 2020, sections 2.1 and 2.2, theorem B.3; whitening "
            "makes real images nearer its assumption of independent pixels",
            factory="harness_plugins.attacks.innerproduct.attack:InnerProduct",
            config=InnerProductConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.CANDIDATES, Channel.PUBLIC}),),
            preparations=(PRIOR,),
            presets={"paper": {"whiten": False, "normalise": False}},
            controls=(
                Control(
                    "mixup[k=2]",
                    "fashion-mini",
                    "identification.top1",
                    0.95,
                    options={
                        "threat_model": "candidates",
                        "private_size": 200,
                        "public_size": 2000,
                    },
                ),
            ),
            formula=(
                "score(x~, s) = <x~ - m, S^-1 (s - m)> / ||S^-1/2 (s - m)||, m and S the mean and "
                "covariance of public images\n"
                "raw: <x~, s>; normalised raw: <x~, s - mean(s)> / ||s - mean(s)||\n"
                "k^3 << d is needed for k images of d independent values (theorem B.3)"
            ),
            weaknesses=(
                "blind to encodings whose signs a mask has flipped: all scores are noise",
                "takes no account of noise, which whitening makes louder: under noise the raw "
                "product sees more, and matchedfilter more than both",
                "one encoding at a time: rounds are not put together",
            ),
            example="harness evaluate --defense 'mixup[k=4]' --attack 'innerproduct[whiten=false]' "
            "--threat-model candidates",
        )
    ]

"""`average`: many encodings of one image, averaged."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Control, hookimpl
from harness_plugins.signs import DEMASKING, SignConfig


class AverageConfig(SignConfig):
    """Which encodings are averaged."""

    strength: Literal["known", "search"] = Field(
        default="known",
        description="known: those that hold the image, if sources are granted; search: the most "
        "similar ones, as where they are not",
    )
    matches: int = Field(
        default=5, ge=1, le=10_000, description="similar encodings averaged with each one (m)"
    )
    similarity: Literal["cosine", "ssim"] = Field(
        default="cosine",
        description="cosine: of whitened encodings, or of their absolute values where signs are "
        "hidden; ssim: of demasked encodings, as in the paper, in every fourth window",
    )


_GIVEN = frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.ENCODER})

_KNOWN = {"private_size": 200, "rounds": 10}
_SEARCHED = {**_KNOWN, "threat_model": "released"}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Averages of encodings, known to be of one image or found to be alike."""
    return [
        AttackSpec(
            name="average",
            version="1",
            summary="averages encodings of one image, known or found by similarity",
            reference="InstaHide: Instance-hiding Schemes for Private Distributed Learning, "
            "sections 2.1 and 5.3, figure 7",
            factory="harness_plugins.attacks.average.attack:Average",
            config=AverageConfig,
            needs=(_GIVEN | {Channel.SOURCES, Channel.N_PRIVATE}, _GIVEN),
            optional=frozenset({Channel.WEIGHTS, Channel.N_PRIVATE}),
            preparations=(DEMASKING,),
            controls=(
                Control("mixup[k=4]", "fashion-mini", "snr_db", 7.5, options=_KNOWN),
                Control("instahide[k=2]", "fashion-mini", "snr_db", 7.0, options=_KNOWN),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 3.0, options=_SEARCHED),
            ),
            presets={
                "quick": {"epochs": 2, "images": 4_000},
                "standard": {"base": 24, "epochs": 6, "images": 50_000},
                "paper": {"strength": "search", "similarity": "ssim", "epochs": 20},
            },
            formula=(
                "a_i = sum w m^ / sum w over the encodings of image i, or the mean of one "
                "encoding and the m most similar to it among all others;\n"
                "m^ demasked where signs are hidden (see demask);\n"
                "x^ = mean + share (a - centre), share by regression on public images encoded "
                "alike: about E[w]/E[w^2] where averages are exact"
            ),
            weaknesses=(
                "partners average out only as the number of encodings grows; lmmse solves for "
                "them instead",
                "search: an encoding that holds a partner of the image is as similar as one that "
                "holds the image",
            ),
            example="harness evaluate --rounds 50 --attack 'average[strength=search]'",
        )
    ]

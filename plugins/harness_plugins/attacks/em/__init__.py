"""`em`: which two images each encoding mixes, found by their likelihood and without a network."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.api import AttackSpec, Config, Control, hookimpl
from harness_plugins.clusters import PUBLISHED
from harness_plugins.mixtures import CLASS_PRIOR


class EmConfig(Config):
    """Where images are looked for, and how long."""

    components: int = Field(
        default=200,
        ge=1,
        le=5000,
        description="principal components of public images in which pairs are compared",
    )
    steps: int = Field(
        default=30,
        ge=2,
        le=10_000,
        description="turns of memberships and images from one start, the noise falling meanwhile",
    )
    restarts: int = Field(default=4, ge=1, le=1000, description="starts; the likeliest is kept")
    redraws: int = Field(
        default=4,
        ge=0,
        le=1000,
        description="times that the images of each class in turn are drawn anew, the others kept",
    )


_FEW: dict[str, Any] = {
    "private_size": 40,
    "public_size": 2000,
    "rounds": 30,
    "threat_model": "released",
}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Expectation and maximisation over pairs."""
    return [
        AttackSpec(
            name="em",
            version="1",
            summary="finds the two images of every encoding by likelihood alone, with no network",
            reference="expectation maximisation (Dempster, Laird, Rubin 1977) with deterministic "
            "annealing (Ueda, Nakano 1998), of pairs of images under a Gaussian prior",
            factory="harness_plugins.attacks.em.attack:Em",
            config=EmConfig,
            needs=(PUBLISHED,),
            fewest_rounds=2,
            preparations=(CLASS_PRIOR,),
            effort="redraws",
            controls=(
                Control("singmix[tau=1]", "fashion-mini", "encodings_assigned", 0.97, options=_FEW),
                Control("singmix[tau=1e-1]", "fashion-mini", "snr_db", 8.0, options=_FEW),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 60.0, options=_FEW),
            ),
            presets={"quick": {"restarts": 2, "redraws": 2}, "paper": {"redraws": 20}},
            formula=(
                "rows x~ = w a + (1-w) b + noise N(0, s^2), a and b of the classes in the label; w "
                "as the label tells, its order and rows of one class as the energy outside the "
                "components does\n"
                "p(a,b | x~) ~ exp(-|x~ - w a - (1-w) b|^2 / 2 (s^2 + t)), t falling to 0\n"
                "images: the ridge z_c = (E[W'W/N] + 1/l_c)^-1 E[W'/N] x~_c about class means; "
                "in turns, from several starts; then each class is drawn anew\n"
                "x^: lmmse of the likeliest pairs"
            ),
            weaknesses=(
                "mixtures of two private images alone, with signs as they are",
                "where noise is so strong that a row does not tell its pair, images come out as "
                "mixtures of several",
                "compares all pairs of two classes: minutes for 100 images, hours for thousands",
                "two images of one class that are much alike are taken for each other",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-1]' --rounds 50 "
            "--private-size 100 --threat-model released --attack em",
        )
    ]

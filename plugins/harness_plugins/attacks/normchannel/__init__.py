"""`normchannel`: how much of its own image an encoding holds, from its norm alone."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl


class NormChannelConfig(Config):
    """The exercise that tells how norms and weights belong together."""

    exercise: int = Field(
        default=10_000,
        ge=100,
        le=1_000_000,
        description="encodings of public images, made by the owner's law, to learn from",
    )
    degree: int = Field(
        default=5, ge=1, le=12, description="degree of the polynomial from norm to weight"
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Weights from norms."""
    return [
        AttackSpec(
            name="normchannel",
            version="1",
            summary="the weight of each encoding's own image, from the encoding's norm alone",
            reference="a consequence of Augmented Mixup Procedure for Privacy-Preserving "
            "Collaborative Training, algorithm 1: noise of a known radius r, times 1 - w",
            factory="harness_plugins.attacks.normchannel.norms:NormChannel",
            config=NormChannelConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.ENCODER}),),
            optional=frozenset({Channel.LABELS}),
            controls=(
                Control(
                    "singmix[tau=1e-4]",
                    "fashion-mini",
                    "weight_error",
                    3e-4,
                    options={"private_size": 1000, "public_size": 2000},
                ),
            ),
            presets={"quick": {"exercise": 4000}},
            formula=(
                "singmix: ||x~||^2 = (1 - w)^2 r^2 + O(r), hence w = 1 - ||x~|| / r to first "
                "order\n"
                "here: w^ = E[w | ||x~||], a Chebyshev polynomial in the norm, fitted by least "
                "squares to public images encoded by the owner's law\n"
                "error left at small tau: <u, w a + (1 - w) b> / r, u a random unit vector"
            ),
            weaknesses=(
                "a norm that does not depend on the weight (mixing without noise, or noise that "
                "is not scaled by 1 - w) gives the mean weight and no more",
                "gaussian noise of d values varies in norm by 1/sqrt(2 d): no better than that",
                "supposes that public images have norms like private ones; matters at large tau",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-4]' --attack 'normchannel'",
        )
    ]

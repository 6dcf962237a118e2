"""`braverman`: which candidates are large where an encoding is large, whatever its signs."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl


class BravermanConfig(Config):
    """How scores are scaled."""

    normalise: bool = Field(
        default=True,
        description="divide by the deviation of each candidate's squares, which makes the score "
        "their correlation with the encoding's; else the score is as published",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The attack on squares."""
    return [
        AttackSpec(
            name="braverman",
            version="1",
            summary="finds the images of a mixture in a list by squared values, under any signs",
            reference="Braverman's attack, in Huang et al., InstaHide, 2020, section 9",
            factory="harness_plugins.attacks.braverman.attack:Braverman",
            config=BravermanConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.CANDIDATES}),),
            presets={"paper": {"normalise": False}},
            controls=(
                Control(
                    "instahide[k=2]",
                    "fashion-mini",
                    "identification.top1",
                    0.6,
                    options={
                        "threat_model": "candidates",
                        "private_size": 200,
                        "public_size": 2000,
                    },
                ),
            ),
            formula="score(x~, s) = <x~^2, s^2> - ||x~||^2 ||s||^2 / d, squares value by value\n"
            "normalised: over the length of s^2 - mean(s^2)",
            weaknesses=(
                "made for Gaussian images: real ones share their bright places, and those of much "
                "contrast score high everywhere",
                "sees little at k=4 and next to nothing at k=6, by its paper's own account",
                "noise louder than the images drowns the squares",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --attack braverman "
            "--threat-model candidates",
        )
    ]

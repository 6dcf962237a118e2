"""`suite`: every attack that applies, and what the strongest makes of each image."""

from __future__ import annotations

from harness.api import AttackSpec, hookimpl


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """All attacks at once."""
    return [
        AttackSpec(
            name="suite",
            version="1",
            summary="runs every attack that applies; for each image the strongest one counts",
            reference="the worst case over attacks, as in Croce and Hein, Reliable evaluation of "
            "adversarial robustness with an ensemble of diverse parameter-free attacks, 2020",
            factory="",
            needs=(),
            members=("*", "gradmatch[preset=scripts]"),
            formula=(
                "score of image i = max over attacks a of score_a(i), in the direction that leaks "
                "more; its null is the max over all nulls, image by image"
            ),
            weaknesses=(
                "no stronger than its strongest member",
                "the maximum over many attacks is lucky somewhere: its null is given the same luck",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --attack suite",
        )
    ]

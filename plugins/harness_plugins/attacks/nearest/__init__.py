"""`nearest`: the public image that looks most like the release."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, hookimpl


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The nearest public image."""
    return [
        AttackSpec(
            name="nearest",
            version="1",
            summary="the public image nearest to the encoding, or to the features, by cosine",
            reference="a baseline every reconstruction must beat",
            factory="harness_plugins.attacks.nearest.search:Nearest",
            needs=(
                frozenset({Channel.ENCODINGS, Channel.PUBLIC}),
                frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER, Channel.PUBLIC}),
            ),
            companion=True,
            formula="x^ = argmax over public p of cos(x~ - m, p - m), m the public mean",
            weaknesses=("knows nothing that the public pool does not hold",),
            example="harness evaluate --attack 'nearest'",
        )
    ]

"""`identity`: the encoding itself is taken for the image."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, Control, hookimpl


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The cheapest attack that looks at the release."""
    return [
        AttackSpec(
            name="identity",
            version="1",
            summary="the encoding itself, rescaled to the energy of a standardised image",
            reference="a baseline every reconstruction must beat",
            factory="harness_plugins.attacks.identity.rescale:Identity",
            needs=(frozenset({Channel.ENCODINGS}),),
            companion=True,
            controls=(
                Control("none", "fashion-mini", "snr_db", 25.0, options={"private_size": 100}),
            ),
            formula="x^ = x~ / rms(x~), one factor for the whole release",
            weaknesses=("amplified noise scores below the mean image, near -3 dB",),
            example="harness evaluate --attack 'identity'",
        )
    ]

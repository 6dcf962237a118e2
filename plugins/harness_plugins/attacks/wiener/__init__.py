"""`wiener`: the best linear attack for white noise on one encoding at a time."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, Control, hookimpl
from harness_plugins.mixtures import PRIOR_BY_OPTION
from harness_plugins.mixtures.options import OfPrior


class WienerConfig(OfPrior):
    """How images are modelled, and where."""


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The row-wise Wiener filter."""
    return [
        AttackSpec(
            name="wiener",
            version="1",
            summary="best linear filter of each encoding alone for white noise, partners unknown",
            reference="Wiener filter, e.g. Kay, Fundamentals of Statistical Signal Processing: "
            "Estimation Theory, section 12.7, in the eigenbasis of public images",
            factory="harness_plugins.attacks.wiener.attack:Wiener",
            config=WienerConfig,
            needs=(
                frozenset({Channel.ENCODINGS, Channel.WEIGHTS, Channel.PUBLIC, Channel.ENCODER}),
            ),
            optional=frozenset({Channel.LABELS}),
            preparations=(PRIOR_BY_OPTION,),
            linear="yes",
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0),
                Control("singmix[tau=1]", "fashion-mini", "snr_db", 3.5),
            ),
            formula=(
                "x^ = m + U z,  z_c = w l_c / ((w^2 + o) l_c + N) (x~ - mean of the row)' U_c\n"
                "w: weight of the row's own image, o: sum of the others' squared weights, whose "
                "images are noise with the images' own spectrum; N as in lmmse"
            ),
            weaknesses=(
                "knows no partner, so the other images of a mixture stay in the way",
                "one round: which encodings of further rounds are of the same image is not known",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --attack 'wiener[mean=public]'",
        )
    ]

"""`matchedfilter`: how likely an encoding is, if it holds a given candidate."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Control, hookimpl
from harness_plugins.mixtures import PRIOR
from harness_plugins.mixtures.options import OfSubspace


class MatchedFilterConfig(OfSubspace):
    """Where the filter works, and how long."""

    sweeps: int = Field(
        default=5,
        ge=0,
        le=1000,
        description="times that encodings which share an image tell each other what they know of "
        "it, where sources are known; 0 takes a partner for a stranger in each encoding",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The likelihood of a known image in noise of a known level."""
    return [
        AttackSpec(
            name="matchedfilter",
            version="1",
            summary="the likelihood of each candidate in an encoding, over all rounds where the "
            "mixture is known",
            reference="matched filter in coloured Gaussian noise, e.g. Kay, Fundamentals of "
            "Statistical Signal Processing: Detection Theory, section 4.4",
            factory="harness_plugins.attacks.matchedfilter.attack:MatchedFilter",
            config=MatchedFilterConfig,
            needs=(
                frozenset(
                    {
                        Channel.ENCODINGS,
                        Channel.CANDIDATES,
                        Channel.WEIGHTS,
                        Channel.PUBLIC,
                        Channel.ENCODER,
                    }
                ),
            ),
            optional=frozenset({Channel.SOURCES, Channel.N_PRIVATE}),
            preparations=(PRIOR,),
            effort="sweeps",
            controls=(
                Control(
                    "singmix[tau=1]",
                    "fashion-mini",
                    "identification.top1",
                    0.9,
                    options={
                        "threat_model": "candidates",
                        "private_size": 200,
                        "public_size": 2000,
                    },
                ),
            ),
            formula=(
                "LLR(a) = w <x~ - m, C^-1 (a - m)> - w^2/2 ||a - m||^2 in the metric C^-1,\n"
                "C = (sum of the other weights' squares) S + N I; m, S of public images, N the "
                "noise, measured on encodings of public images\n"
                "sources unknown: log of the mean likelihood ratio over the places in a row\n"
                "known: what all rows that hold an image say of it adds up, after Gaussian belief "
                "propagation has put what rows know of the other images in their place"
            ),
            weaknesses=(
                "images are not Gaussian: under weak noise scores are far too sure of themselves",
                "the exact norm of sphere noise is not used; sphere does",
                "flipped signs leave no linear trace: all scores are then equal, which is chance",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --attack matchedfilter "
            "--threat-model candidates",
        )
    ]

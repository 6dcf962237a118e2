"""`indistinguishability`: whether encodings of one image can be told from those of another."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl

_SMALL: dict[str, Any] = {"rounds": 20, "private_size": 100, "public_size": 200}


class IndistinguishabilityConfig(Config):
    """How many images are compared with one another."""

    images: int = Field(
        default=10, ge=2, le=200, description="private images whose encodings are compared, by pair"
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """InstaHide's Kolmogorov-Smirnov test."""
    return [
        AttackSpec(
            name="indistinguishability",
            version="1",
            summary="Kolmogorov-Smirnov tests of whether two images' encodings have one law",
            reference="Huang et al., InstaHide, 2020, appendix E.3 and table 4 (10 images x 400 "
            "encodings, seven statistics); p-values by Gnedenko and Korolyuk, 1951",
            factory="harness_plugins.attacks.indistinguishability.comparison:Indistinguishability",
            config=IndistinguishabilityConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.SOURCES}),),
            controls=(
                Control("none", "fashion-mini", "rejection_rate", 0.7, options=_SMALL),
                Control("noise", "fashion-mini", "rejection_rate", 0.35, options=_SMALL),
            ),
            formula=(
                "statistics of an encoding: mean, deviation, total variation, values at 4 random "
                "places\n"
                "D = max |F_a - F_b| over the m encodings of images a and b each\n"
                "P(D >= h/m) = 2 sum over j >= 1 of (-1)^(j+1) C(2m, m + j h) / C(2m, m), exact "
                "where one law made both"
            ),
            weaknesses=(
                "needs many rounds: with fewer than 8 encodings of an image it does not run, and "
                "small differences need hundreds",
                "seven statistics of single encodings: what takes two encodings to see (their "
                "correlation, say) is missed",
                "the paper's own setting tests one encoding at a time, whose mean p-value is near "
                "one half whatever leaks; it is given as table4_p_* beside the tests of m against "
                "m encodings",
                "rows of one round can hold one another's images, and so are not quite independent "
                "where there are only a few dozen private images",
                "values that tie (pixels that are always black) make the test careful: it rejects "
                "less often than its level",
            ),
            example="harness evaluate --defense 'instahide' --attack 'indistinguishability' "
            "--rounds 400",
        )
    ]

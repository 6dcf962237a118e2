"""`sphere`: the exact norm of the noise betrays which pair of candidates a mixture holds."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl


class SphereConfig(Config):
    """How much of the release is examined."""

    rows: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="encodings examined at the most, from the first; the square of the number of "
        "candidates is worked through for each",
    )
    sweeps: int = Field(
        default=3,
        ge=0,
        le=100,
        description="times that encodings which share an image exchange what they think of it, "
        "where sources are known; 0 takes each encoding alone",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The sphere test."""
    return [
        AttackSpec(
            name="sphere",
            version="1",
            summary="tests every pair of candidates for leaving noise of the exact norm",
            reference="follows from noise uniform on a sphere: Augmented Mixup Procedure for "
            "Privacy-Preserving Collaborative Training, algorithm 1",
            factory="harness_plugins.attacks.sphere.attack:Sphere",
            config=SphereConfig,
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
            effort="sweeps",
            presets={"quick": {"rows": 100}, "standard": {"rows": 1000}},
            controls=(
                Control(
                    "singmix[tau=1e-4]",
                    "fashion-mini",
                    "partner_known_top1",
                    0.95,
                    options={"threat_model": "candidates", "private_size": 50, "public_size": 2000},
                ),
            ),
            formula=(
                "misfit(a, b) = (||x~ - w a - (1-w) b|| - (1-w) r) / ((1-w) s),  "
                "score(a, b) = -log(1 + misfit(a, b)^2) / 2\n"
                "r and its deviation s are measured on encodings of public images; norms by Gram "
                "expansion in float64\n"
                "a candidate's score for a row is the best over its partners and both places; "
                "with sources, plus what other rows with the same image say of it"
            ),
            weaknesses=(
                "pairs only, and only where noise has an exact norm: gaussian noise brings it to "
                "chance under strong noise",
                "float32 rounding of the encodings is what the true pair misses by; where noise is "
                "1000 times the images, the best of very many wrong pairs may miss by as little",
                "every image of the mixture must be among the candidates, unaugmented",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-6]' --attack sphere "
            "--threat-model candidates",
        )
    ]

"""`regression`: the best linear map from encodings to images that public images teach."""

from __future__ import annotations

from pydantic import Field

from harness.api import AttackSpec, Channel, Config, Control, hookimpl


class RegressionConfig(Config):
    """How much is learned from."""

    encodings: int = Field(
        default=200_000,
        ge=1000,
        le=1_000_000_000,
        description="encodings of public images to learn from; each image as often as the release "
        "has rounds, and then again",
    )


_GIVEN = frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.ENCODER})
_KNOWN = frozenset({Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE})


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Ridge regression of images on encodings."""
    return [
        AttackSpec(
            name="regression",
            version="1",
            summary="the best learned linear map from encodings, or their absolute values, to "
            "images: ridge on public images under the defense's own law",
            reference="ridge regression (Hoerl and Kennard 1970) of images on encodings; what it "
            "learns of noise and signs no formula has to state",
            factory="harness_plugins.attacks.regression.attack:Regression",
            config=RegressionConfig,
            needs=(_GIVEN | _KNOWN, _GIVEN),
            optional=frozenset({Channel.LABELS}),
            effort="encodings",
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0),
                Control("singmix[tau=1]", "fashion-mini", "snr_db", 6.0),
                Control("instahide[k=2]", "fashion-mini", "snr_db", 5.5),
            ),
            presets={"quick": {"encodings": 30_000}, "paper": {"encodings": 1_000_000}},
            formula=(
                "z_i = sum_r u_r f(x~_r) / sum_r u_r over the rows that hold image i, f = |.| "
                "where signs are hidden, u = w / (noise + other images); z = f(x~) of the row "
                "alone where sources are not granted\n"
                "x^ = A z + B (class shares of the image, of its rows, 1), A and B by ridge on "
                "public images encoded by the same law; the penalty is on A alone, chosen by the "
                "pooled error of held-out public images"
            ),
            weaknesses=(
                "one map for all images: lmmse solves for the partners, which this takes for noise",
                "as many parameters as an image has values squared: some ten thousand public "
                "images, or it is weaker than it could be",
                "beyond 4096 values encodings are looked at in 1024 principal components of "
                "public images",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --attack regression",
        )
    ]

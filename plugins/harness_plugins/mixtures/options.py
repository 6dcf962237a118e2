"""Options that attacks on mixtures have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config


class OfSubspace(Config):
    """Where a release is looked at."""

    subspace: Literal["auto", "none"] = Field(
        default="auto",
        description="auto: where the encoder resized images before it added noise, encodings are "
        "first projected on what resized images can be; none: they are merely resized back",
    )


class OfPrior(OfSubspace):
    """What images are taken to be before the release is looked at."""

    mean: Literal["class", "public"] = Field(
        default="class",
        description="what each image is centred on: its class's public mean, where labels are "
        "granted, or the mean of all public images",
    )

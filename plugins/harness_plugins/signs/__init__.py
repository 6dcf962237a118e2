"""Signs that a mask hid, guessed by networks that learned from public images."""

from __future__ import annotations

from pydantic import Field

from harness.api import Channel, Config, Preparation

_FIELDS = ("base", "epochs", "images", "lr")


class SignConfig(Config):
    """The size of a network that guesses signs, and its training."""

    base: int = Field(default=16, ge=4, le=256, description="channels of the network's first level")
    epochs: int = Field(
        default=2,
        ge=0,
        le=1000,
        description="passes over the public images, encoded anew each; 0 guesses no sign",
    )
    images: int = Field(default=20_000, ge=20, description="public images to train on, at the most")
    lr: float = Field(default=3e-3, gt=0, le=1, description="learning rate of Adam")


DEMASKING = Preparation(
    "demasking",
    "harness_plugins.signs.demasker:learn",
    frozenset({Channel.PUBLIC, Channel.ENCODER}),
    options=_FIELDS,
    constants={"method": "regression"},
)
"""Signs of the mixtures that the owner's law makes: a `demasker.Demasker`."""

DEMASKING_BY_OPTION = Preparation(
    "demasking",
    "harness_plugins.signs.demasker:learn",
    frozenset({Channel.PUBLIC, Channel.ENCODER}),
    options=(*_FIELDS, "method"),
)
"""The same, learned as the attack's option `method` says."""

UNFOLDING = Preparation(
    "unfolding",
    "harness_plugins.signs.unfolder:learn",
    frozenset({Channel.PUBLIC}),
    options=_FIELDS,
)
"""Images from their absolute values: an `unfolding.Unfolder`, the same for every defense."""

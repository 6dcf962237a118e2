"""Images from masked mixtures whose weights are known: `unfold`, and the last step of `carlini`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness_plugins.mixtures import PRIOR
from harness_plugins.signs import DEMASKING, UNFOLDING, SignConfig


class UnfoldConfig(SignConfig):
    """Which way to go, and how far."""

    way: Literal["auto", "absolute", "signed"] = Field(
        default="auto",
        description="absolute: solve for |x|, then guess its signs; signed: guess the mixtures' "
        "signs, then solve for x; auto: what served public images better",
    )
    steps: int = Field(
        default=1000, ge=0, le=100_000, description="steps of Adam of the absolute way"
    )
    spread: float = Field(
        default=0.05, ge=0, le=100, description="absolute way: weight of mean(1 - |x|)"
    )
    tv: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="absolute way: weight of the mean total variation of |x|",
    )
    sweeps: int = Field(
        default=12, ge=1, le=100, description="rounds of signs and solution of the signed way"
    )

    def unprepared(self) -> frozenset[str]:
        """What only the other way uses."""
        only = {
            "absolute": frozenset({DEMASKING.name, PRIOR.name}),
            "signed": frozenset({UNFOLDING.name}),
        }
        return only.get(self.way, frozenset())

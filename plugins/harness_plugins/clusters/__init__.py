"""From encodings to who is in which of them: what the attacks that cluster share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Channel, Config, Preparation

PUBLISHED = frozenset(
    {Channel.ENCODINGS, Channel.LABELS, Channel.PUBLIC, Channel.ENCODER, Channel.N_PRIVATE}
)
"""What was published, and images of the attacker's own to encode by the owner's law."""

Stage = Literal["none", "clusters", "weights", "signs"]
_TRUTHS: dict[str, frozenset[Channel]] = {
    "none": frozenset(),
    "clusters": frozenset({Channel.SOURCES}),
    "weights": frozenset({Channel.SOURCES, Channel.WEIGHTS}),
    "signs": frozenset({Channel.SOURCES, Channel.WEIGHTS, Channel.MASKS}),
}


class ClusterConfig(Config):
    """What every attack that clusters can be told instead of finding it out."""

    oracle: Stage = Field(
        default="none",
        description="truth put in place of what the attack finds, up to this stage: clusters (who "
        "is in which encoding), weights (and by how much), signs (and the masks, under the threat "
        "model oracle); ranks nowhere",
    )

    def demands(self) -> frozenset[Channel]:
        """The truth that `oracle` names."""
        return _TRUTHS[self.oracle]

    def unranked(self) -> str:
        """With truth in it, a score is a diagnosis."""
        return "" if self.oracle == "none" else f"oracle={self.oracle} hands the attack the truth"

    def knows(self, stage: Stage) -> bool:
        """Whether the truth of a stage is handed over."""
        stages = list(_TRUTHS)
        return stages.index(self.oracle) >= stages.index(stage)


_PAIR_FIELDS = ("pair_steps", "pair_batch", "pair_rate", "pair_images")

PAIRS = Preparation(
    "pair-embedding",
    "harness_plugins.clusters.training:learn",
    frozenset({Channel.PUBLIC, Channel.ENCODER}),
    options=_PAIR_FIELDS,
)
"""A network that puts encodings of one image close together: an `embedding.Embedder`."""


class PairConfig(ClusterConfig):
    """And how the likeness of two encodings is learned, and how many images they are of."""

    count: Literal["told", "estimated"] = Field(
        default="told",
        description="how many private images of each class there are: as labels tell, or "
        "estimated: as many as encodings seem to be of, and no more in all than a round has rows",
    )
    pair_steps: int = Field(
        default=400, ge=1, le=1_000_000, description="training steps of the pair embedding"
    )
    pair_batch: int = Field(
        default=192,
        ge=8,
        le=8192,
        description="public images in a step, mixed with each other in two rounds",
    )
    pair_rate: float = Field(
        default=2e-3, gt=0, le=1, description="learning rate of the pair embedding"
    )
    pair_images: int = Field(
        default=50_000,
        ge=20,
        le=10_000_000,
        description="public images that pairs are made of, at the most",
    )

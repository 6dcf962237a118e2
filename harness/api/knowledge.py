"""What an attacker may hold: channels, the kinds of release they come from, threat models."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReleaseKind(StrEnum):
    """What leaves the owner."""

    ENCODINGS = "encodings"
    FEATURES = "features"
    GRADIENTS = "gradients"
    STATISTICS = "statistics"
    UPDATES = "updates"


class Channel(StrEnum):
    """One kind of knowledge. The comment gives what `View` returns for it."""

    ENCODINGS = "encodings"  # Tensor [rounds, n, *shape], standardised
    LABELS = "labels"  # Tensor [rounds, n, classes], soft labels of the encodings
    WEIGHTS = "weights"  # Tensor [rounds, n, k], mixing weights, the primary image's first
    SOURCES = "sources"  # Tensor [rounds, n, k] int64, which private image each weight is of
    MASKS = "masks"  # Tensor [rounds, n, ceil(d/8)] uint8, signs that were flipped, packed
    PUBLIC = "public"  # Samples, standardised
    N_PRIVATE = "n_private"  # int
    ENCODER = "encoder"  # Encoder, the defense rebuilt with its resolved parameters
    CANDIDATES = "candidates"  # Tensor [m, *shape], private images and decoys, shuffled
    FEATURES = "features"  # Tensor [n, ...], h(x) at the cut
    FEATURE_ENCODER = "feature_encoder"  # nn.Module, h
    GRADIENTS = "gradients"  # dict of Tensor [batches, *parameter shape]
    UPDATES = "updates"  # dict of Tensor [parties, *parameter shape], new weights minus old ones
    MODEL = "model"  # nn.Module, at which gradients were taken, or that local training began with
    BATCH_LABELS = "batch_labels"  # Tensor [batches, b, classes]; of statistics one batch of all
    BN_STATISTICS = "bn_statistics"  # dict of Tensor [batches, channels]
    STATISTICS = "statistics"  # Statistics, noisy sums over many images


NETWORKS = frozenset({Channel.MODEL, Channel.FEATURE_ENCODER})
"""Channels that are networks of the owner's."""

RELEASE_CHANNELS = {
    Channel.ENCODINGS: ReleaseKind.ENCODINGS,
    Channel.FEATURES: ReleaseKind.FEATURES,
    Channel.GRADIENTS: ReleaseKind.GRADIENTS,
    Channel.STATISTICS: ReleaseKind.STATISTICS,
    Channel.UPDATES: ReleaseKind.UPDATES,
}

OF_BATCHES = frozenset({ReleaseKind.GRADIENTS, ReleaseKind.UPDATES})
"""Kinds that come in pieces, each of a batch of private images or of a few."""

_ALWAYS = {Channel.PUBLIC, Channel.N_PRIVATE, Channel.ENCODER, Channel.CANDIDATES}
_MIXTURE = {Channel.WEIGHTS, Channel.SOURCES}
CARRIED = {
    ReleaseKind.ENCODINGS: frozenset(
        {Channel.ENCODINGS, Channel.LABELS, Channel.MASKS} | _ALWAYS | _MIXTURE
    ),
    ReleaseKind.FEATURES: frozenset({Channel.FEATURES, Channel.FEATURE_ENCODER} | _ALWAYS),
    ReleaseKind.GRADIENTS: frozenset(
        {Channel.GRADIENTS, Channel.MODEL, Channel.BATCH_LABELS, Channel.BN_STATISTICS}
        | _ALWAYS
        | _MIXTURE
    ),
    ReleaseKind.STATISTICS: frozenset({Channel.STATISTICS, Channel.BATCH_LABELS} | _ALWAYS)
    - {Channel.ENCODER},
    ReleaseKind.UPDATES: frozenset(
        {Channel.UPDATES, Channel.MODEL, Channel.BATCH_LABELS} | _ALWAYS | _MIXTURE
    ),
}
"""Which channels there are at all beside each kind of release."""

PRIOR_CHANNELS = frozenset(
    {
        Channel.PUBLIC,
        Channel.ENCODER,
        Channel.N_PRIVATE,
        Channel.FEATURE_ENCODER,
        Channel.MODEL,
    }
)
"""What an attacker may hold without the private images' release: images of its own, the law of
the defense, the networks. All that `Attack.prepare` may see."""


@dataclass(frozen=True)
class ThreatModel:
    """A named set of channels. Unranked ones (`oracle`) never enter a leaderboard's ranks."""

    name: str
    summary: str
    grants: frozenset[Channel]
    ranked: bool = True

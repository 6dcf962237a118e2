"""Linear mixtures of images under a Gaussian prior: what the attacks on encodings share."""

from __future__ import annotations

from harness.api import Channel, Preparation

_FACTORY = "harness_plugins.mixtures.prior:learn_prior"

MIXTURE = frozenset({Channel.ENCODINGS, Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE})
"""What tells the whole mixture."""

KNOWN_LAW = MIXTURE | {Channel.PUBLIC, Channel.ENCODER}
"""And images of the attacker's own, to learn from and to encode by the owner's law."""

PRIOR = Preparation(
    "gaussian-prior", _FACTORY, frozenset({Channel.PUBLIC}), constants={"mean": "public"}
)
"""Mean and principal components of the public pool."""

PRIOR_BY_OPTION = Preparation(
    "gaussian-prior", _FACTORY, frozenset({Channel.PUBLIC}), options=("mean",)
)
"""The same, about class means where the attack's option `mean` says so."""

CLASS_PRIOR = Preparation(
    "gaussian-prior", _FACTORY, frozenset({Channel.PUBLIC}), constants={"mean": "class"}
)
"""The same about class means."""

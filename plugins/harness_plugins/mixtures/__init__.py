"""Linear mixtures of images under a Gaussian prior: what the attacks on encodings share."""

from __future__ import annotations

from harness.api import Channel, Preparation

_FACTORY = "harness_plugins.mixtures.prior:learn_prior"

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

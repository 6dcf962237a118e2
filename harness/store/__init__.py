"""Content-addressed results on disk: artifacts of stages, and records."""

from harness.store.artifacts import Artifact, Store
from harness.store.paths import cache_root

__all__ = ["Artifact", "Store", "cache_root"]

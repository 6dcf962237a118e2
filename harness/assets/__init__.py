"""Where datasets and weights come from, verified by hash. Knows no particular one."""

from harness.assets.lookup import folder, locate
from harness.assets.retrieval import FetchReport, SkippedSource, fetch

__all__ = ["FetchReport", "SkippedSource", "fetch", "folder", "locate"]

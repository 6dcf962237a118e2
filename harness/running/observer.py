"""How an engine tells what it is doing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.api.plugins import Progress, silent


class Observer:
    """Hears of stages; this one keeps silent. The command line shows bars."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """A stage begins and, when the block ends, has ended."""
        yield silent

    def cached(self, name: str) -> None:
        """A stage was there already."""

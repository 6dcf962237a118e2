"""Running a record's cell again, with nothing in the cache but data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import UsageError
from harness.store.features import FOLDER as FEATURES
from harness.store.paths import disk_errors, scratch_folder

if TYPE_CHECKING:
    from harness.running.observer import Observer
    from harness.store.record import RunRecord

SHARED = ("assets", FEATURES)
"""What a fresh cache shares with the one that is there: data, and a public network's features."""


@contextmanager
def fresh_cache(root: Path) -> Iterator[Path]:
    """A cache in which nothing was ever run; gone at the end."""
    with scratch_folder(root, "replay") as folder:
        with disk_errors(folder):
            for name in SHARED:
                (root / name).mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(root.absolute() / name)
        yield folder


def replay(record: RunRecord, cache: Path, observer: Observer) -> RunRecord:
    """The record of the same cell, run by what is installed here.

    Cells that are replayed in one cache share releases and trainings. UsageError or
    AssetUnavailable for what cannot be run here.
    """
    from harness.running.evaluation import evaluate, fingerprint

    if record.seeds.get("owner_key") != fingerprint(None):
        raise UsageError("it was made with an owner's key of its own, which its owner keeps")
    asked = record.request.model_dump()
    asked |= {"threads": record.threads, "device": "auto"}
    return evaluate(observer=observer, cache=cache, **asked)

"""`evaluate`: one request in; one record out, and its gallery beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.running.run import Run

if TYPE_CHECKING:
    from harness.running.run import Observer
    from harness.store.record import RunRecord


def evaluate(
    *,
    observer: Observer | None = None,
    cache: Path | None = None,
    owner_key: bytes | None = None,
    force: str | None = None,
    **options: Any,
) -> RunRecord:
    """Evaluate one cell and return its record.

    `options` are those of `harness evaluate` with underscores: `defense`, `attack`, `dataset`,
    `preset`, `seed`, …. Raises UsageError for what cannot be asked and AssetUnavailable for data
    that is not here. A stage that fails comes back as a record whose `status` says so.
    """
    run = Run.open(options, cache=cache, observer=observer, secret=owner_key, force=force)
    if answer := run.answer():
        return answer
    record = run.record()
    if record.artifacts:
        from harness.drawing.gallery import draw_gallery

        draw_gallery(run.store.root, record)
    return record

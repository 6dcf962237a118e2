"""Records in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from harness.scoring.verdict import main_metric

if TYPE_CHECKING:
    from harness.store.record import RunRecord


def brief(records: Iterable[RunRecord]) -> Iterator[str]:
    """A line for each record: the cell, what leaked, what was learned, its id."""
    for record in records:
        cell = f"{record.request.defense} × {record.request.attack}"
        seed = f" seed {record.request.seed}" if record.request.seed else ""
        yield f"{record.id[:12]}  {cell:<58} {record.dataset.name}{seed}  {_result(record)}"


def _result(record: RunRecord) -> str:
    if record.status != "ok":
        return f"{record.status}: {record.error}"
    return "  ".join(filter(None, [_leak(record), _learned(record)])) or record.verdict


def _leak(record: RunRecord) -> str:
    name = main_metric(record.privacy)
    if name is None:
        return ""
    score = record.privacy[name]
    ci = score.gain_ci
    reach = f" [{ci[0]:+.3g}, {ci[1]:+.3g}]" if ci else ""
    return f"{name} {score.mean:.3g}, gain {score.gain:+.3g}{reach}"


def _learned(record: RunRecord) -> str:
    return f"accuracy {record.utility.accuracy:.3f}" if record.utility else ""

"""Records as tables for notebooks: a row for each metric that a record was scored by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from harness.scoring.summary import MetricScore
    from harness.store.record import RunRecord

TEXT, WHOLE, REAL = "string", "Int64", "float64"
COLUMNS = {
    **dict.fromkeys(("record", "status", "error", "defense", "attack", "member"), TEXT),
    **dict.fromkeys(("dataset", "space", "victim", "threat_model", "release"), TEXT),
    **dict.fromkeys(("private_images", "rounds", "seed"), WHOLE),
    **dict.fromkeys(("metric", "unit", "leaks_more"), TEXT),
    **dict.fromkeys(("mean", "mean_low", "mean_high", "median", "worst", "null"), REAL),
    "null_name": TEXT,
    **dict.fromkeys(("gain", "gain_low", "gain_high"), REAL),
    **dict.fromkeys(("n", "undefined"), WHOLE),
    "unavailable": TEXT,
    **dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), REAL),
    **dict.fromkeys(("reference", "reference_low", "reference_high", "chance"), REAL),
    "flags": TEXT,
}
"""A record's columns, in their order, and how pandas holds them.

`member` is the attack that the row is of where a cell's attack is many, and missing in rows of the
whole. `null` is the best null's mean, `gain` signed so that positive leaks more, `reference` the
accuracy without protection, `chance` that of naming one class always. Flags are parted by spaces.
"""


def rows_of(record: RunRecord) -> list[dict[str, Any]]:
    """A row for each metric, then those of the members; one without a metric if none was scored."""
    whole = {**_cell(record), **_learned(record)}
    rows = [{**whole, **_scored(name, score)} for name, score in record.privacy.items()]
    for member, each in record.members.items():
        own = {
            **whole,
            "member": member,
            "status": each.status,
            "error": each.error,
            "flags": _flags(each.flags),
        }
        rows += [{**own, **_scored(*scored)} for scored in each.privacy.items()] or [own]
    return rows if record.privacy else [whole, *rows]


def frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> DataFrame:
    """Rows as a table of these columns and types; what a row lacks is missing."""
    from pandas import DataFrame

    return DataFrame(list(rows), columns=list(columns)).astype(dict(columns))


def _cell(record: RunRecord) -> dict[str, Any]:
    """What was evaluated, and how that ended."""
    return {
        "record": record.id,
        "status": record.status,
        "error": record.error,
        "defense": record.request.defense,
        "attack": record.request.attack,
        "dataset": record.dataset.name,
        "space": record.space.name,
        "victim": record.victim.name,
        "threat_model": record.threat_model,
        "release": record.release_kind or None,
        "private_images": record.splits.get("private"),
        "rounds": record.request.rounds,
        "seed": record.request.seed,
        "flags": _flags(record.flags),
    }


def _learned(record: RunRecord) -> dict[str, Any]:
    if (found := record.utility) is None:
        return {}
    return {
        **_with_ends("accuracy", found.accuracy, found.interval),
        **_with_ends("reference", found.reference_accuracy, found.reference_interval),
        "chance": found.chance,
    }


def _scored(metric: str, score: MetricScore) -> dict[str, Any]:
    same = ("unit", "leaks_more", "median", "worst", "null", "null_name")
    return {
        "metric": metric,
        **{name: getattr(score, name) for name in (*same, "n", "undefined", "unavailable")},
        **_with_ends("mean", score.mean, score.ci),
        **_with_ends("gain", score.gain, score.gain_ci),
    }


def _with_ends(
    name: str, value: float | None, ends: tuple[float, float] | None
) -> dict[str, float | None]:
    low, high = ends or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _flags(flags: Iterable[Any]) -> str:
    return " ".join(flag.name for flag in flags)

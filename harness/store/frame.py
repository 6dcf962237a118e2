"""Records as tables for notebooks: a row for each metric that a record has a score of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.store.bounds import IDENTIFICATION, Bounded, bounded, budget_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from harness.scoring.identification import Identification
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
    **dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), REAL),
    **dict.fromkeys(("reference", "reference_low", "reference_high", "chance"), REAL),
    "learner": TEXT,
    **dict.fromkeys(("top1", "top1_low", "top1_high", "top1_chance", "auc"), REAL),
    "flags": TEXT,
    **dict.fromkeys(("reached_db", "reached_low", "reached_high"), REAL),
    **dict.fromkeys(("ceiling_db", "ceiling_low", "ceiling_high"), REAL),
    "ceiling_vacuous": "boolean",
    **dict.fromkeys(("identification_ceiling", "epsilon", "delta"), REAL),
    "adjacency": TEXT,
}
"""A record's columns, in their order, and how pandas holds them.

`member` is the attack that the row is of where a cell's attack is many, and missing in rows of the
whole. `null` is the best null's mean, `gain` signed so that positive leaks more, `reference` the
accuracy without protection, `chance` that of naming one class always, `learner` who the accuracy is
of. `top1` is how often a true image came first among candidates. Flags are parted by spaces.
`reached_db` is the attack's pooled SNR beside the `ceiling_db` that bounds it, which says nothing
where it is vacuous; `epsilon` at `delta` is what is proven of the release, of one `adjacency`.
"""


def rows_of(record: RunRecord) -> list[dict[str, Any]]:
    """The whole's rows, then each member's; of what has no score one row without a metric."""
    whole = _cell(record)
    if found := record.utility:
        whole |= _with_ends("accuracy", found.accuracy, found.interval)
        whole |= _with_ends("reference", found.reference_accuracy, found.reference_interval)
        whole["chance"] = found.chance
        whole["learner"] = found.inference if found.by_learner else None
    whole |= _identified(record.identification)
    if proven := budget_of(record):
        whole |= proven.model_dump()
    held = dict(bounded(record))
    rows = _scored({**whole, **_bounded(held.get(record.attack.name))}, record.privacy)
    for name, each in record.members.items():
        ended = {"status": each.status, "error": each.error, "flags": _flags(each.flags)}
        told = {**_identified(each.identification), **_bounded(held.get(name))}
        own = {**whole, **ended, **told, "member": name}
        rows += _scored(own, each.privacy)
    return rows


def _identified(found: Identification | None) -> dict[str, float | None]:
    """How well images were told among candidates; nothing where nobody asked."""
    if found is None:
        return dict.fromkeys(("top1", "top1_low", "top1_high", "top1_chance", "auc"))
    chance = {"top1_chance": found.top1_chance, "auc": found.auc}
    return {**_with_ends("top1", found.top1, found.top1_ci), **chance}


def _bounded(found: Bounded | None) -> dict[str, Any]:
    """What an attack reached beside its ceiling; nothing where none holds against it."""
    if found is None:
        return {}
    named = found.beside(IDENTIFICATION)
    return {
        **_with_ends("reached_db", found.reached.value, found.reached.interval, "reached"),
        **_with_ends("ceiling_db", found.ceiling.value, found.ceiling.interval, "ceiling"),
        "ceiling_vacuous": found.vacuous,
        "identification_ceiling": named and named.value,
    }


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
        "attack": record.request.attack if record.request.only != "utility" else None,
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


def _scored(of: Mapping[str, Any], scores: Mapping[str, MetricScore]) -> list[dict[str, Any]]:
    same = ("unit", "leaks_more", "median", "worst", "null", "null_name", "n", "undefined")
    rows = [
        {
            **of,
            "metric": metric,
            **{name: getattr(score, name) for name in same},
            **_with_ends("mean", score.mean, score.ci),
            **_with_ends("gain", score.gain, score.gain_ci),
        }
        for metric, score in scores.items()
        if score.unavailable is None
    ]
    return rows or [dict(of)]


def _with_ends(
    name: str, value: float | None, ends: tuple[float, float] | None, bare: str = ""
) -> dict[str, float | None]:
    """`bare` is the name without its unit, where it has one."""
    low, high = ends or (None, None)
    return {name: value, f"{bare or name}_low": low, f"{bare or name}_high": high}


def _flags(flags: Iterable[Any]) -> str:
    return " ".join(flag.name for flag in flags)

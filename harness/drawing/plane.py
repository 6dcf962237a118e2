"""Accuracy against leakage: what a defense costs and what it keeps, one point per record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.api.errors import UsageError, nearest
from harness.results.apart import differing, written
from harness.scoring.verdict import main_metric

if TYPE_CHECKING:
    from harness.scoring.intervals import Interval
    from harness.scoring.summary import MetricScore
    from harness.store.record import RunRecord, Used

    Options: TypeAlias = Mapping[str, Any]

ASKED = (
    "attack",
    "public",
    "victim",
    "preset",
    "repeats",
    "rounds",
    "private_size",
    "public_size",
    "test_size",
    "targets",
    "targets_from",
    "batch_size",
    "victim_epochs",
    "bn_mode",
    "seed",
)
"""What a request may ask for that changes what is measured, beside the defense."""
EXACT_DB = 60.0
"""From here on errors are below a thousandth of the image, as where nothing protects it."""
NO_SCALE = ("seed",)
"""Numbers that are in no order."""


@dataclass(frozen=True)
class Point:
    """One record: accuracy, leakage and what the best guess reaches; intervals at 95%."""

    series: str
    label: str
    accuracy: float
    accuracy_ci: Interval | None
    leakage: float
    leakage_ci: Interval | None
    null: float | None


@dataclass(frozen=True)
class Plane:
    """All that is drawn. `lines` joins points by number; `unprotected` accuracies are sorted.

    `front` numbers the points that stand out, `ground` is a leakage to draw a line at, `chance` the
    accuracy of guessing.
    """

    heading: str
    note: str
    across: str
    up: str
    points: tuple[Point, ...]
    lines: tuple[tuple[int, ...], ...]
    unprotected: tuple[tuple[float, Interval | None], ...]
    off_scale: float = inf
    """Leakage that would leave no room for the rest: its points stand at the edge."""
    front: tuple[int, ...] = ()
    ground: float | None = None
    chance: float | None = None


def make_plane(records: Sequence[RunRecord], metric: str | None = None) -> Plane:
    """The plane of these records, by their main metric or another one that all of them have.

    UsageError names the records that have no place in it.
    """
    records = list({record.id: record for record in records}.values())
    _check_comparable(records)
    _check_accuracy(records)
    metric = _metric(records, metric)
    options = [_options(record) for record in records]
    first, score = records[0], records[0].privacy[metric]
    return Plane(
        heading=f"{first.attack.name} on {first.dataset.name}: accuracy against leakage",
        note=f"threat model {first.threat_model}, {first.release_kind} released; 95% intervals",
        across=f"accuracy of the victim ({first.victim.name})",
        up=_leakage_label(metric, score),
        points=tuple(_points(records, metric, options)),
        lines=tuple(_lines(records, options)),
        unprotected=_unprotected(records),
        off_scale=EXACT_DB if score.unit == "dB" else inf,
    )


def _check_comparable(records: Sequence[RunRecord]) -> None:
    """Attack, data, victim and knowledge are the same all over the plane."""
    same: dict[str, Callable[[RunRecord], str]] = {
        "attacks": lambda record: record.attack.name,
        "datasets": lambda record: _with_options(record.dataset),
        "victims": lambda record: record.victim.name,
        "spaces": lambda record: _with_options(record.space),
        "threat models": lambda record: record.threat_model,
        "releases": lambda record: record.release_kind,
    }
    for what, of in same.items():
        found = sorted({of(record) for record in records})
        if len(found) > 1:
            raise UsageError(
                f"These records have different {what} ({', '.join(found)}), so they make no "
                "plane: the defense may differ, and how much was asked of the run."
            )


def _with_options(used: Used) -> str:
    options = ", ".join(f"{name}={value}" for name, value in sorted(used.config.items()))
    return f"{used.name}[{options}]" if options else used.name


def _check_accuracy(records: Sequence[RunRecord]) -> None:
    without = [record for record in records if record.utility is None]
    if without:
        raise UsageError(
            f"No accuracy was measured in {_named(without)}, so the plane has no place for "
            "it: that needs a cell with a result, evaluated without `--only privacy`."
        )


def _metric(records: Sequence[RunRecord], asked: str | None) -> str:
    """The metric of the plane; UsageError where a record lacks it."""
    metric = asked or main_metric(records[0].privacy)
    if metric is None:
        raise UsageError(f"No image metric was scored in {_named(records[:1])}.")
    without = [r for r in records if metric not in r.privacy or r.privacy[metric].mean is None]
    if without:
        reasons = {r.privacy[metric].unavailable for r in without if metric in r.privacy} - {None}
        scored = {name for r in records for name, s in r.privacy.items() if s.mean is not None}
        hint = f" ({'; '.join(sorted(map(str, reasons)))})" if reasons else ""
        hint = hint or ("." + nearest(metric, scored) if metric not in scored else "")
        raise UsageError(f"The metric '{metric}' was not scored in {_named(without)}{hint}")
    return metric


def _named(records: Sequence[RunRecord]) -> str:
    names = [r.id[:12] + (f" ({r.status})" if r.status != "ok" else "") for r in records]
    return f"record{'s' * (len(records) > 1)} {', '.join(names)}"


def _leakage_label(metric: str, score: MetricScore) -> str:
    """The axis's name. It is written upwards, so that the arrow points where more leaks."""
    unit = f" ({score.unit})" if score.unit else ""
    more = "higher leaks more →" if score.leaks_more == "higher" else "← lower leaks more"
    return f"{metric}{unit}   {more}"


def _points(records: Sequence[RunRecord], metric: str, options: Sequence[Options]) -> list[Point]:
    labels = _labels(records, options)
    points = []
    for record, label in zip(records, labels, strict=True):
        score, utility = record.privacy[metric], record.utility
        assert score.mean is not None
        assert utility is not None
        points.append(
            Point(
                series=_series(record),
                label=label,
                accuracy=utility.accuracy,
                accuracy_ci=utility.interval,
                leakage=score.mean,
                leakage_ci=score.ci,
                null=score.null,
            )
        )
    return points


def _labels(records: Sequence[RunRecord], options: Sequence[Options]) -> list[str]:
    """The options that differ within a record's series; its id where there are none."""
    labels = []
    for record, own in zip(records, options, strict=True):
        among = [options[i] for i in _members(records, _series(record))]
        parts = written(own, _names(among, options))
        alone = len(among) == 1
        labels.append(", ".join(parts) or ("" if alone else record.id[:8]))
    return labels


def _names(among: Sequence[Options], options: Sequence[Options]) -> list[str]:
    """Options to speak of in a series: those of its defense, and what else was asked differently.

    The latter is held against all records, since one series may differ in it from another.
    """
    asked = [name for name in differing(options) if name in ASKED]
    return [name for name in differing(among) if name not in ASKED] + asked


def _series(record: RunRecord) -> str:
    return "+".join(used.name for used in record.defense) or "none"


def _members(records: Sequence[RunRecord], series: str) -> list[int]:
    return [i for i, record in enumerate(records) if _series(record) == series]


def _options(record: RunRecord) -> dict[str, Any]:
    """What was asked, and the options of the stack, by their defense where a name is two's."""
    asked = record.request.model_dump()
    options = {name: asked[name] for name in ASKED if name in asked}
    taken = [name for used in record.defense for name in used.config] + list(options)
    for used in record.defense:
        for name, value in used.config.items():
            options[name if taken.count(name) == 1 else f"{used.name}.{name}"] = value
    return options


def _lines(records: Sequence[RunRecord], options: Sequence[Options]) -> list[tuple[int, ...]]:
    """Points of one series to join: one number walks along a line, all else stays the same."""
    lines = []
    for series in dict.fromkeys(map(_series, records)):
        members = _members(records, series)
        lines += _walks(members, options)
    return lines


def _walks(members: Sequence[int], options: Sequence[Options]) -> list[tuple[int, ...]]:
    among = [options[i] for i in members]
    names = differing(among)
    numbers = [name for name in names if name not in NO_SCALE and _is_scale(name, among)]
    if not numbers:
        return []
    walked = max(numbers, key=lambda name: len({each[name] for each in among}))

    def others(i: int) -> list[str]:
        return [str(options[i].get(name)) for name in names if name != walked]

    ordered = sorted(members, key=lambda i: (others(i), options[i][walked]))
    lines = [tuple(group) for _, group in groupby(ordered, key=others)]
    return [line for line in lines if len(line) > 1]


def _is_scale(name: str, among: Sequence[Options]) -> bool:
    values = [each.get(name) for each in among]
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _unprotected(records: Sequence[RunRecord]) -> tuple[tuple[float, Interval | None], ...]:
    """Each accuracy on unprotected images once."""
    found = {
        record.utility.reference_accuracy: record.utility.reference_interval
        for record in records
        if record.utility and record.utility.reference_accuracy is not None
    }
    return tuple(sorted(found.items()))

"""The accuracy-leakage plane: what a defense costs and what it keeps, a point for each of them.

Points are records of one attack, or rows of a board; where they stand, what they say and which of
them a line joins is decided here. `png` and `svg` only draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.api.errors import UsageError, nearest
from harness.asking.request import parse_stack
from harness.results.bracket import bracketed, proven
from harness.results.identified import in_words, names_images
from harness.results.numbers import gained, metric_name, off_scale, share
from harness.results.view import WEAK, BoardView, Leak, Number, RowView, TrackView
from harness.scoring.verdict import MAIN_METRIC, main_metric
from harness.store.bounds import bounded
from harness.store.record import RunRecord, Used

Options: TypeAlias = Mapping[str, Any]

ASKED = (
    *("attack", "public", "victim", "preset", "repeats", "rounds"),
    *("private_size", "public_size", "test_size", "targets", "targets_from", "judge_at"),
    *("batch_size", "victim_epochs", "bn_mode", "seed"),
    *("local_steps", "local_lr", "local_images"),
)
"""What a request may ask for that changes what is measured, beside the defense."""
CROWDED = 0.3
"""A label that would lie on other things by this share of its area is left out."""
NO_SCALE = ("seed",)
"""Numbers that are in no order."""
BUDGET = "epsilon"
"""The option that is always told of a point, also where no other of its series differs in it."""
BAR = "reached … ceiling, pooled"
"""What a bar beside a point is, in a legend."""
OVER_BLIND = (
    "bars beside points are pooled SNR over a blind guess: of one attack, up to its ceiling"
)
POOLED = "bars beside points are pooled SNR: what was reached, up to its ceiling"
"""Likewise in a note: of a board's rows, and of records."""


@dataclass(frozen=True)
class Point:
    """One record or row: accuracy, leakage and what the best guess reaches; intervals at 95%.

    `name` is the row's defense, or the record's id; `tip` is what it says when pointed at. `named`:
    its images are surely told among candidates, whatever leaks of them besides. `bracket` is what
    one attack reached and what bounds it, pooled, where a ceiling says so: another measure in the
    unit of the axis, to be drawn beside the point.
    """

    name: str
    series: str
    label: str
    accuracy: Number
    leakage: Number
    null: float | None = None
    front: bool = False
    named: bool = False
    bracket: tuple[float, float] | None = None
    tip: str = ""


@dataclass(frozen=True)
class Plane:
    """All that is drawn. `lines` joins points by number; `unprotected` accuracies are sorted.

    `series` are the names of defenses in the order of their colours. `bar` says what a bracket is,
    and is empty where no point has one. `ground` is a leakage to draw
    a line at, `chance` the accuracy of guessing. Leakage of `off_scale` or more would leave the
    rest no room: such points stand at the edge.
    """

    points: tuple[Point, ...]
    series: tuple[str, ...]
    lines: tuple[tuple[int, ...], ...]
    unprotected: tuple[Number, ...]
    unit: str = ""
    off_scale: float = inf
    ground: float | None = None
    chance: float | None = None
    heading: str = ""
    note: str = ""
    across: str = ""
    up: str = ""
    bar: str = ""

    @property
    def columns(self) -> list[float]:
        """The accuracies that lines stand at, from the foot to the top."""
        chance = [] if self.chance is None else [self.chance]
        return [*(number.value for number in self.unprotected), *chance]

    def beyond(self, point: Point) -> bool:
        """Whether a point is off the scale of others; where all are, the scale is theirs."""
        far = point.leakage.value >= self.off_scale
        return far and any(each.leakage.value < self.off_scale for each in self.points)


def widened(values: Sequence[float], margin: float) -> tuple[float, float]:
    """From the least to the largest, with so much of that range as air on both sides."""
    low, high = min(values), max(values)
    room = margin * (high - low) or 0.05 * (abs(high) or 1.0)
    return low - room, high + room


def ends(number: Number) -> tuple[float, ...]:
    """A value, and both ends of its interval if it has one."""
    return (number.value, *(number.ci or ()))


def best_place(
    tried: NDArray[np.float64], taken: NDArray[np.float64], frame: NDArray[np.float64]
) -> tuple[int, float]:
    """Of the boxes `tried` [k, 4] for a label, the first that covers least, and how much that is.

    Boxes are x0, y0, x1, y1. The cost is the area on what is `taken` [n, 4], and three times what
    lies outside the `frame` [4].
    """
    area = (tried[:, 2] - tried[:, 0]) * (tried[:, 3] - tried[:, 1])
    outside = area - _shared(tried, frame[None])
    costs = _shared(tried, taken) + 3 * outside
    best = int(np.argmin(costs))
    return best, float(costs[best])


def _shared(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """[k]: the area that each box shares with the others [n, 4], one after the other."""
    one, other = boxes[:, None], others[None]
    across = np.minimum(one[..., 2], other[..., 2]) - np.maximum(one[..., 0], other[..., 0])
    up = np.minimum(one[..., 3], other[..., 3]) - np.maximum(one[..., 1], other[..., 1])
    shared: NDArray[np.float64] = (across.clip(min=0) * up.clip(min=0)).sum(1)
    return shared


def differing(options: Sequence[Options]) -> list[str]:
    """Names whose values are not everywhere the same, in the order in which they first come."""
    names = dict.fromkeys(name for each in options for name in each)
    return [name for name in names if len({str(each.get(name)) for each in options}) > 1]


def written(options: Options, names: Sequence[str]) -> list[str]:
    """`name=value` of each; those that are unset only where nothing else is to be said."""
    there = {name: options[name] for name in names if name in options}
    chosen = {name: value for name, value in there.items() if value is not None} or there
    short = {n: f"{v:.3g}" if isinstance(v, float) else v for n, v in chosen.items()}
    return [f"{name}={value}" for name, value in short.items()]


def row_plane(track: TrackView, rows: Iterable[RowView], metric: str) -> Plane | None:
    """The plane of a track's rows by a metric, in their order; None where none has a place.

    A place has who has both numbers, and no attack that is still to run.
    """
    placed = [
        (row, row.accuracy, leak)
        for row in rows
        if row.accuracy and not row.missing and (leak := row.leak(metric))
    ]
    if not placed:
        return None
    series = [series_of(row.defense) for row, _, _ in placed]
    options = [options_of(row.defense) for row, _, _ in placed]
    names = tuple(sorted({series_of(row.defense) for row in track.rows}))
    known = [(len(row.seeds), row.reference) for row, _, _ in placed if row.reference]
    known.sort(key=lambda each: -each[0])  # one line stands for all: that of most seeds
    unit = placed[0][2].unit
    there = any(_bracket(row, leak) for row, _, leak in placed)
    return Plane(
        points=tuple(
            Point(
                name=row.defense,
                series=name,
                label=label,
                accuracy=accuracy,
                leakage=leak.gain,
                front=row.rank.get(metric) == 1,
                named=row.names_images,
                bracket=_bracket(row, leak),
                tip=_tip(row, accuracy, leak, metric),
            )
            for (row, accuracy, leak), name, label in zip(
                placed, series, _labels(series, options), strict=True
            )
        ),
        series=names,
        lines=tuple(_lines(names, series, [_numbers(each) for each in options], most=1)),
        unprotected=tuple(bare for _, bare in known[:1]),
        unit=unit,
        off_scale=off_scale(unit),
        ground=0.0,
        chance=next((row.chance for row, _, _ in placed if row.at_chance), None),
        bar=BAR if there else "",
    )


def _bracket(row: RowView, leak: Leak) -> tuple[float, float] | None:
    """In decibels over a blind guess, where the axis has decibels over the best one.

    An axis of another metric, or of absolute values, has no place for it.
    """
    fits = row.bracket is not None and leak.metric == MAIN_METRIC
    return row.bracket.over_blind if row.bracket and fits else None


def front_of(view: BoardView) -> Plane | None:
    """The plane of the first track that has rows with ranks; None where no track has any."""
    for track, metric in product(view.tracks, view.metrics):
        if any(metric in row.rank for row in track.rows):
            rows = sorted(track.rows, key=lambda row: (series_of(row.defense), row.defense))
            plane = row_plane(track, rows, metric)
            return plane and _headed(plane, view, track, metric)
    return None


def _headed(plane: Plane, view: BoardView, track: TrackView, metric: str) -> Plane:
    """The plane with what a picture says around it."""
    n = track.protocol.get("private_size")
    size = f", from {int(n):,} images" if n else ""
    who = "the best learner" if any(row.learner for row in track.rows) else "the victim"
    unit = f" ({plane.unit})" if plane.unit else ""
    note = "of each image the strongest attack; 95% intervals; below 0 is worse than guessing"
    return replace(
        plane,
        heading=f"{view.title}: {track.title[:1].lower()}{track.title[1:]}",
        note=f"{note}\n{OVER_BLIND}" if plane.bar else note,
        across=f"accuracy of {who}{size}",
        up=f"gain in {metric_name(metric)} over guessing{unit}   higher leaks more →",
    )


def series_of(defense: str) -> str:
    """The defense without its options: `gradprune[p=0.9]+mixup[k=4]` is `gradprune+mixup`."""
    return "+".join(each.name for each in parse_stack(defense))


def options_of(defense: str) -> dict[str, str]:
    """All options of a stack, as written; in a stack by the defense they belong to."""
    stack = parse_stack(defense)
    return {
        option if len(stack) == 1 else f"{each.name}.{option}": value
        for each in stack
        for option, value in each.options.items()
    }


def _numbers(options: Mapping[str, str]) -> Options:
    """Options as numbers, where they are any."""
    found: dict[str, Any] = dict(options)
    for name, value in options.items():
        with suppress(ValueError):
            found[name] = float(value)
    return found


def _tip(row: RowView, accuracy: Number, leak: Leak, metric: str) -> str:
    """Lines that a reader sees when pointing at a row's mark."""
    lines = [
        row.defense,
        f"accuracy {share(accuracy)}{', at chance' if row.at_chance else ''}",
        f"learned by {row.learner}" if row.learner else "",
        f"{metric_name(leak.metric)} gain {gained(leak)}",
        f"strongest attack {leak.strongest}" if leak.strongest else "",
        f"rank {row.rank[metric]}" if metric in row.rank else "",
        f"{row.identified.attack} names {in_words(row.identified)}"
        if row.identified and row.names_images
        else "",
        f"pooled SNR, reached … ceiling: {bracketed(row.bracket)} dB, {row.bracket.attack}"
        if row.bracket
        else "",
        proven(row.budget) if row.budget else "",
        WEAK if row.only_weak else "",
        "" if row.protected else "the reference, without a rank",
        "" if row.verified else "unverified",
        f"older: {', '.join(row.older)}" if row.older else "",
    ]
    return "\n".join(filter(None, lines))


def _labels(
    series: Sequence[str], options: Sequence[Options], asked: Collection[str] = ()
) -> list[str]:
    """What tells each from others of its series: options of its defense, and what was `asked`.

    The latter is held against all, since one series may differ in it from another.
    """
    over_all = [name for name in differing(options) if name in asked]
    labels = []
    for name, own in zip(series, options, strict=True):
        among = [each for other, each in zip(series, options, strict=True) if other == name]
        within = [option for option in _telling(among) if option not in asked]
        if BUDGET not in within and own.get(BUDGET) is not None:
            within.append(BUDGET)
        labels.append(", ".join(written(own, within + over_all)))
    return labels


def _telling(options: Sequence[Options]) -> list[str]:
    """Names that differ, but for those of a single value that only go where one before them is."""
    kept: list[str] = []
    for name in differing(options):
        there = [name in each for each in options]
        single = len({str(each[name]) for each in options if name in each}) == 1
        if not (single and any(there == [one in each for each in options] for one in kept)):
            kept.append(name)
    return kept


def _lines(
    names: Iterable[str], series: Sequence[str], options: Sequence[Options], most: float = inf
) -> list[tuple[int, ...]]:
    """Points of one series to join: one number walks along a line, all else stays the same.

    Series by series, in the order of their `names`; none of which more than `most` numbers differ.
    """
    by_series = ([i for i, other in enumerate(series) if other == name] for name in names)
    return [line for members in by_series for line in _walks(members, options, most)]


def _walks(
    members: Sequence[int], options: Sequence[Options], most: float
) -> list[tuple[int, ...]]:
    among = [options[i] for i in members]
    names = differing(among)
    scales = [n for n in names if all(type(each.get(n)) in (int, float) for each in among)]
    numbers = [name for name in scales if name not in NO_SCALE]
    if not numbers or len(numbers) > most:
        return []
    walked = max(numbers, key=lambda name: len({each[name] for each in among}))

    def others(i: int) -> list[str]:
        return [str(options[i].get(name)) for name in names if name != walked]

    ordered = sorted(members, key=lambda i: (others(i), options[i][walked]))
    lines = [tuple(group) for _, group in groupby(ordered, key=others)]
    return [line for line in lines if len(line) > 1]


def make_plane(records: Sequence[RunRecord], metric: str | None = None) -> Plane:
    """The plane of these records, by their main metric or another one that all of them have.

    UsageError names the records that have no place in it.
    """
    records = list({record.id: record for record in records}.values())
    _check_comparable(records)
    metric = _metric(records, metric)
    series = ["+".join(used.name for used in record.defense) or "none" for record in records]
    options = [_options(record) for record in records]
    each = zip(records, series, _labels(series, options, ASKED), strict=True)
    labels = [text or record.id[:8] * (series.count(name) > 1) for record, name, text in each]
    first, score = records[0], records[0].privacy[metric]
    unit = f" ({score.unit})" if score.unit else ""
    # the axis's name is written upwards, so that the arrow points where more leaks
    more = "higher leaks more →" if score.leaks_more == "higher" else "← lower leaks more"
    points = tuple(
        _point(record, name, label, metric)
        for record, name, label in zip(records, series, labels, strict=True)
    )
    there = any(point.bracket for point in points)
    note = f"threat model {first.threat_model}, {first.release_kind} released; 95% intervals"
    return Plane(
        points=points,
        series=tuple(dict.fromkeys(series)),
        lines=tuple(_lines(dict.fromkeys(series), series, options)),
        unprotected=_unprotected(records),
        unit=score.unit,
        off_scale=off_scale(score.unit),
        heading=f"{first.attack.name} on {first.dataset.name}: accuracy against leakage",
        note=f"{note}\n{POOLED}" if there else note,
        across="accuracy of the best learner"
        if _taught(records)
        else f"accuracy of the victim ({first.victim.name})",
        up=f"{metric}{unit}   {more}",
        bar=BAR if there else "",
    )


def _taught(records: Iterable[RunRecord]) -> bool:
    """Whether learners were compared."""
    return any(record.utility is not None and record.utility.by_learner for record in records)


def _point(record: RunRecord, series: str, label: str, metric: str) -> Point:
    score, utility = record.privacy[metric], record.utility
    assert score.mean is not None
    assert utility is not None
    return Point(
        name=record.id,
        series=series,
        label=label,
        accuracy=Number(value=utility.accuracy, ci=utility.interval),
        leakage=Number(value=score.mean, ci=score.ci),
        null=score.null,
        named=names_images(record),
        bracket=_of_record(record) if metric == MAIN_METRIC else None,
    )


def _of_record(record: RunRecord) -> tuple[float, float] | None:
    """What its attack reached and what bounds that, where the ceiling says something."""
    found = dict(bounded(record)).get(record.attack.name)
    if found is None or found.vacuous:
        return None
    return found.reached.value, found.ceiling.value


def _check_comparable(records: Sequence[RunRecord]) -> None:
    """Attack, data, victim and knowledge are the same all over the plane; accuracy is known."""
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
    without = [record for record in records if record.utility is None]
    if without:
        raise UsageError(
            f"No accuracy was measured in {_named(without)}, so the plane has no place for "
            "it: that needs a cell with a result, evaluated without `--only privacy`."
        )


def _with_options(used: Used) -> str:
    options = ", ".join(f"{name}={value}" for name, value in sorted(used.config.items()))
    return f"{used.name}[{options}]" if options else used.name


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


def _options(record: RunRecord) -> dict[str, Any]:
    """What was asked, and the options of the stack, by their defense where a name is two's."""
    asked = record.request.model_dump()
    options = {name: asked[name] for name in ASKED if name in asked}
    taken = [name for used in record.defense for name in used.config] + list(options)
    for used in record.defense:
        for name, value in used.config.items():
            options[name if taken.count(name) == 1 else f"{used.name}.{name}"] = value
    return options


def _unprotected(records: Sequence[RunRecord]) -> tuple[Number, ...]:
    """Each accuracy on unprotected images once."""
    found = {
        record.utility.reference_accuracy: record.utility.reference_interval
        for record in records
        if record.utility and record.utility.reference_accuracy is not None
    }
    return tuple(Number(value=value, ci=ci) for value, ci in sorted(found.items()))

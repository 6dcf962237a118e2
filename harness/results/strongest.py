"""Of each image, the strongest of a row's attacks: from what records keep image by image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.api.errors import IntegrityError
from harness.results.material import Group
from harness.results.numbers import TOO_LARGE, combined, number, rounded
from harness.results.view import Leak, Number
from harness.rng import KeyedStream, board_key
from harness.scoring.summary import ByImage, Interval, array, as_lucky, mean_intervals
from harness.scoring.verdict import ABSOLUTE
from harness.store.record import RunRecord

Column = NDArray[np.float64]

LARGEST = 1e9
"""No metric has values beyond: decibels end at 120."""


@dataclass(frozen=True, eq=False)
class Worst:
    """One metric of one seed: `best` and `null` [targets], NaN where either is undefined.

    `best` is what the strongest attack scores on each image. `null` is what the strongest of the
    same attacks' answers scores there as a guess, where other images of the class are true: as
    many tries, as much help by matching, and as lucky. Where the best guess without a release has
    a higher mean, it is the null. `who` is the strongest attack of each image that has one.
    """

    like: ByImage
    best: Column
    null: Column
    who: tuple[str, ...]

    @property
    def sign(self) -> int:
        """+1 where higher values leak more, else -1."""
        return 1 if self.like.leaks_more == "higher" else -1

    @property
    def gain(self) -> Column:
        """[targets], signed so that positive leaks more."""
        gain: Column = self.sign * (self.best - self.null)
        return gain


Cases = Mapping[int, Mapping[str, Worst]]
"""A row's worst cases, by seed and by metric."""


def worst_cases(groups: Sequence[Group], metrics: Collection[str]) -> Cases:
    """Of the seeds on which most of a row's attacks ran: on others the strongest may be missing.

    By these metrics, as they are and of absolute values.
    """
    by_seed: dict[int, list[tuple[str, RunRecord]]] = {}
    for group in groups:
        for record in group.counted:
            if record.by_image:
                by_seed.setdefault(record.request.seed, []).append((group.attack, record))
    most = max(map(len, by_seed.values()), default=0)
    full = {seed: ran for seed, ran in sorted(by_seed.items()) if len(ran) == most}
    return {seed: _metrics(ran, metrics) for seed, ran in full.items()}


def _metrics(ran: Sequence[tuple[str, RunRecord]], metrics: Collection[str]) -> dict[str, Worst]:
    found: dict[str, list[tuple[str, ByImage]]] = {}
    for attack, record in ran:
        for name, scores in record.by_image.items():
            if name.removesuffix(ABSOLUTE) in metrics:
                found.setdefault(name, []).append((attack, scores))
    _check_alike(ran)
    worst = {name: worst_of(each) for name, each in sorted(found.items())}
    return {name: each for name, each in worst.items() if np.isfinite(each.best).any()}


def _check_alike(ran: Sequence[tuple[str, RunRecord]]) -> None:
    """Every record of one row and seed judges the same images by the same metrics."""
    kept = [(name, s) for _, record in ran for name, s in record.by_image.items()]
    lengths = {len(column) for _, s in kept for column in (s.attack, s.guess)}
    drawn = [column for _, s in kept for column in (s.misplaced, s.easier) if column]
    draws = {len(column) / max(1, min(lengths)) for column in drawn}
    metrics = {(name, s.leaks_more, s.unit) for name, s in kept}
    if (
        len(lengths) > 1
        or len(draws) > 1
        or not all(map(float.is_integer, draws))
        or len(metrics) > len({name for name, _ in kept})
    ):
        ids = ", ".join(record.id[:12] for _, record in ran)
        raise IntegrityError(
            f"Records {ids} should be of the same images and metrics, and are not."
        )


def worst_of(ran: Sequence[tuple[str, ByImage]]) -> Worst:
    """One metric's worst case over attacks, by name, that were judged on the same images."""
    like = ran[0][1]
    sign = 1 if like.leaks_more == "higher" else -1
    table = sign * np.stack([array(scores.attack) for _, scores in ran])
    best = np.fmax.reduce(table, axis=0)
    null = sign * _null(ran, sign, sign * best)
    defined = np.isfinite(best) & np.isfinite(null)
    if (np.abs(np.stack([best, null])[:, defined]) > LARGEST).any():
        raise IntegrityError(TOO_LARGE)
    index = np.where(np.isnan(table), -np.inf, table).argmax(0)
    return Worst(
        like=like,
        best=np.where(defined, sign * best, np.nan),
        null=np.where(defined, sign * null, np.nan),
        who=tuple(ran[i][0] for i, there in zip(index, defined, strict=True) if there),
    )


def _null(ran: Sequence[tuple[str, ByImage]], sign: int, best: Column) -> Column:
    """[targets]: of the guesses and the `best` scores' worth as guesses, what has the best mean."""
    guesses = [array(scores.guess) for _, scores in ran]
    shown = [scores for _, scores in ran if scores.misplaced]
    if shown:
        draws = sign * np.fmax.reduce(np.stack([sign * scores.draws for scores in shown]), axis=0)
        lucky = as_lucky(best, draws, [scores.corrections for scores in shown])
        guesses.append(np.where(np.isnan(lucky), guesses[0], lucky))
    defined = np.logical_and.reduce([np.isfinite(each) for each in guesses])
    if not defined.any():
        return guesses[0]
    return max(guesses, key=lambda each: sign * float(each[defined].mean()))


Intervals = Mapping[Worst, tuple["Interval | None", "Interval | None"]]
"""Of each worst case, the intervals of its mean and of its gain."""


def intervals(rows: Iterable[Cases]) -> Intervals:
    """Bootstrap intervals of all worst cases; those of as many images share their resamples.

    So the interval of one does not depend on which others there are.
    """
    by_length: dict[int, list[Worst]] = {}
    by_metric = (each for cases in rows for each in cases.values())
    for worst in (worst for each in by_metric for worst in each.values()):
        by_length.setdefault(len(worst.best), []).append(worst)
    found: dict[Worst, tuple[Interval | None, Interval | None]] = {}
    for n, members in by_length.items():
        columns = np.stack([c for each in members for c in (each.best, each.gain)], axis=1)
        bounds = mean_intervals(columns, KeyedStream(board_key(0)).stream(use="board", images=n))
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        found |= dict(zip(members, pairs, strict=True))
    return found


def leaks(cases: Cases, sure: Intervals) -> dict[str, Leak]:
    """A row's leaks by metric, over the seeds of its worst cases."""
    names = dict.fromkeys(name for by_metric in cases.values() for name in by_metric)
    return {name: _leak(name, cases, sure) for name in names}


def _leak(name: str, cases: Cases, sure: Intervals) -> Leak:
    own = {seed: by_metric[name] for seed, by_metric in cases.items() if name in by_metric}
    members = list(own.values())
    first = members[0]
    return Leak(
        metric=name,
        unit=first.like.unit,
        leaks_more=first.like.leaks_more,
        mean=combined([_mean(each.best, sure[each][0]) for each in members]),
        null=combined([_mean(each.null, None) for each in members]).value,
        gain=combined([_mean(each.gain, sure[each][1]) for each in members]),
        worst=rounded(first.sign * max(float(np.nanmax(e.sign * e.best)) for e in members)),
        strongest=wins(members).most_common(1)[0][0],
        seeds=tuple(own),
    )


def _mean(values: Column, ci: Interval | None) -> Number:
    return number(float(np.nanmean(values)), ci)


def wins(members: Iterable[Worst]) -> Counter[str]:
    """Of how many images each attack was the strongest; of equals the first comes first."""
    return Counter(name for each in members for name in each.who)

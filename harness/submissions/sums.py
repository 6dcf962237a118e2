"""Whether a record's numbers follow from one another: what editing one of them by hand breaks.

A record's id says that nobody changed it since it was sealed; sealing is open to everyone. What
is summed up stands beside what it sums up, though, and has to agree with it. Pure, and torch is
not needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.api.errors import UsageError
from harness.asking.request import parse_one, parse_stack
from harness.rng import KeyedStream, board_key
from harness.scoring.flags import below_null, undefined_targets
from harness.scoring.summary import (
    PROPORTION,
    ByImage,
    Interval,
    MetricScore,
    array,
    mean_intervals,
    share_interval,
    spread_reach,
)
from harness.scoring.utility import Accuracy, Utility
from harness.store.record import RunRecord

ROUNDED = 1e-5
"""Scores by image keep six digits: their sums may be off by this much of the largest of them."""
EXACT = 1e-9
"""What is computed from numbers of the record itself may be off by this much of them."""
SPREAD_ALONE = {f"encoding-harness/record/{version}" for version in (1, 2, 3, 4)}
"""Records whose intervals of several trainings are of their spread alone."""
WOBBLE = 0.1
"""Resampled bounds may be off by this share of their distance, lest a new scipy break a board."""


@np.errstate(all="ignore")  # somebody may have written numbers that nobody can add
def faults(record: RunRecord) -> list[str]:
    """What of a record does not agree with the rest of it; nothing if all does."""
    try:
        found = [*_of_request(record), *_of_status(record)]
    except UsageError as error:
        return [f"what was asked for cannot be read: {error}"]
    for name, score in record.privacy.items():
        found += [f"{name}: {fault}" for fault in _of_score(score)]
    found += [*_of_images(record), *_of_flags(record)]
    if record.utility:
        checked = _of_utility(
            record.utility, record.request.repeats, record.schema_ in SPREAD_ALONE
        )
        found += [f"utility: {fault}" for fault in checked]
    return found


def _of_request(record: RunRecord) -> Iterator[str]:
    """What was asked for is what ran."""
    request = record.request
    stack = [used.name for used in record.defense]
    if [selection.name for selection in parse_stack(request.defense)] != stack:
        yield f"'{request.defense}' was asked for and '{'+'.join(stack)}' ran"
    for kind in ("attack", "dataset", "victim", "space"):
        text, ran = getattr(request, kind), getattr(record, kind).name
        if parse_one(text).name != ran:
            yield f"the {kind} '{text}' was asked for and '{ran}' ran"
    if request.threat_model != record.threat_model:
        yield f"the threat model is '{record.threat_model}', not '{request.threat_model}' as asked"
    if record.seeds.get("seed") != request.seed:
        yield f"the seed is {record.seeds.get('seed')}, not {request.seed} as asked"
    if request.release not in (None, record.release_kind):
        yield f"{record.release_kind} were released, not {request.release} as asked"


def _of_status(record: RunRecord) -> Iterator[str]:
    scored = bool(record.privacy or record.utility)
    if record.status == "ok" and not scored:
        yield "it says ok and has no scores"
    if record.status != "ok" and (scored or not record.error):
        yield f"it says {record.status} and has scores, or no reason"


def _of_score(score: MetricScore) -> Iterator[str]:
    """A summary against itself."""
    if score.mean is None or score.null is None or score.gain is None:
        if not score.unavailable or score.n:
            yield "it has no mean, null and gain, and no reason why"
        return
    sign = 1 if score.leaks_more == "higher" else -1
    if score.null_name not in score.nulls or not _same(score.nulls[score.null_name], score.null):
        yield f"its null is not that of '{score.null_name}'"
    elif not _same(max(sign * each for each in score.nulls.values()), sign * score.null):
        yield f"'{score.null_name}' is not the best of its nulls"
    if not _same(score.gain, sign * (score.mean - score.null)):
        yield f"its gain {score.gain:.6g} is not what its mean has over its null"
    bounded = {"mean": (score.mean, score.ci), "gain": (score.gain, score.gain_ci)}
    for name, (value, bounds) in bounded.items():
        if bounds and not within(value, bounds):
            yield f"its {name} {value:.6g} is outside of its interval"


def _of_images(record: RunRecord) -> Iterator[str]:
    """Summaries against the scores by image that they sum up."""
    if record.schema_.endswith(("/1", "/2", "/3")) or record.members:
        return
    scored = {name for name, score in record.privacy.items() if score.mean is not None}
    shown = scored & record.by_image.keys()
    if scored != shown:
        yield f"there are no scores by image of {', '.join(sorted(scored - shown))}"
    bounds = _resampled(record, sorted(shown))
    for name in sorted(shown):
        found = _of_metric(record.privacy[name], record.by_image[name], bounds.get(name))
        yield from (f"{name}: {fault}" for fault in found)
    targets = record.splits.get("targets")
    kept = record.by_image.values()
    lengths = {len(column) for each in kept for column in (each.attack, each.guess) if column}
    drawn = {
        len(column) % (targets or 1) for each in kept for column in (each.misplaced, each.easier)
    }
    if lengths - {targets} or drawn - {0}:
        yield f"there are scores of {sorted(lengths)} images, not of its targets"


def _of_flags(record: RunRecord) -> Iterator[str]:
    """Flags that follow from scores are there, and no others of their name."""
    if record.members:
        return
    there = {flag.name for flag in record.flags}
    for name, flags in (("below_null", below_null), ("undefined_targets", undefined_targets)):
        follows = bool(flags(record.privacy))
        if follows != (name in there):
            yield f"its scores {'ask for' if follows else 'do not bear out'} the flag {name}"


def _of_metric(score: MetricScore, kept: ByImage, resampled: Interval | None) -> Iterator[str]:
    attack, guess = array(kept.attack), array(kept.guess)
    drawn = len(kept.misplaced)
    if (
        len(guess) != len(attack)
        or drawn % max(1, len(guess))
        or len(kept.easier) not in (0, drawn)
    ):
        yield f"there are {len(attack)} scores and {len(guess)} guesses"
        return
    if (kept.leaks_more, kept.unit) != (score.leaks_more, score.unit):
        yield "its scores by image have another direction or unit"
    if score.n + score.undefined != len(attack) or np.isfinite(attack).sum() < score.n:
        yield f"{score.n} of {len(attack)} images cannot be what it sums up"
        return
    if np.isfinite(attack).sum() == score.n:  # else some null alone has no value, and is not kept
        nulls = [guess, (kept.draws + kept.corrections).mean(0)] if drawn else [guess]
        yield from _sums(score, attack, nulls)
    if resampled and score.ci and _apart(resampled, score.ci):
        yield f"its interval is not {_text(resampled)}, which its scores by image give"


def _sums(
    score: MetricScore, attack: NDArray[np.float64], nulls: Sequence[NDArray[np.float64]]
) -> Iterator[str]:
    there = np.isfinite(attack)
    values, sign = attack[there], 1 if score.leaks_more == "higher" else -1
    slack = ROUNDED * float(
        np.nanmax(np.abs([values, *(each[there] for each in nulls)]), initial=1e-3)
    )
    expected = {
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "median": float(np.median(values)),
        "worst": sign * float((sign * values).max()),
    }
    for name, wanted in expected.items():
        stated = getattr(score, name)
        if stated is None or not abs(stated - wanted) <= slack:
            yield f"its {name} {shown(stated)} is not {wanted:.6g}, which its scores by image give"
    at = score.worst_index
    if at is None or not 0 <= at < len(attack) or not abs(attack[at] - expected["worst"]) <= slack:
        yield f"image {at} is not the one that leaks most"
    best = max(float(np.nanmean(sign * each[there])) for each in nulls)
    if score.null is not None and sign * score.null > best + slack:
        yield f"its null {score.null:.6g} is better than the best of its nulls by image"


def _resampled(record: RunRecord, names: list[str]) -> dict[str, Interval | None]:
    """By metric, the bounds of its mean as the judge resamples them; not those of proportions."""
    smooth = [name for name in names if record.privacy[name].unit != PROPORTION]
    columns = [array(record.by_image[name].attack) for name in smooth]
    if not columns or len({len(column) for column in columns}) > 1:
        return {}
    stream = KeyedStream(board_key(record.request.seed)).stream(stage="judge")
    bounds = mean_intervals(np.stack(columns, axis=1), stream.stream(use="bootstrap"))
    return dict(zip(smooth, bounds, strict=True))


def _of_utility(utility: Utility, repeats: int, spread_alone: bool) -> Iterator[str]:
    """An accuracy against its trainings, and these against the test images they were tried on."""
    own = utility.accuracies.get(utility.inference)
    if own is None or (own.mean, own.interval) != (utility.accuracy, utility.interval):
        yield f"its accuracy {utility.accuracy:.6g} is not that of '{utility.inference}'"
    stated = (utility.reference_accuracy, utility.reference_interval)
    plain = utility.reference_accuracies.get(utility.reference_inference)
    if ((None, None) if plain is None else (plain.mean, plain.interval)) != stated:
        yield f"its reference {shown(stated[0])} is not that of its trainings"
    yield from _of_choice(utility.inference, utility.validation, utility.accuracies)
    chosen, tried = utility.reference_inference, utility.reference_validation
    yield from _of_choice(chosen, tried, utility.reference_accuracies)
    fewest = 1 if utility.by_learner else repeats
    for part in (utility.accuracies, utility.reference_accuracies):
        for way, accuracy in part.items():
            found = _of_accuracy(accuracy, utility.n, {fewest, repeats}, spread_alone)
            yield from (f"{way}: {fault}" for fault in found)


def _of_choice(
    chosen: str, validation: Mapping[str, float], accuracies: Mapping[str, Accuracy]
) -> Iterator[str]:
    """Of several learners, the one that counts is the best by validation."""
    if not validation:
        return
    if set(validation) != set(accuracies):
        yield "learners were chosen among others than those that have an accuracy"
    elif validation[chosen] < max(validation.values()):
        yield f"'{chosen}' is not the learner that was best on the images to choose by"


def _of_accuracy(
    accuracy: Accuracy, n: int, repeats: set[int], spread_alone: bool
) -> Iterator[str]:
    shares = accuracy.trainings
    if len(shares) not in repeats or n < 1:
        yield f"{max(repeats)} trainings were asked for, and it has {len(shares)}"
        return
    if not all(0 <= share <= 1 and _same(share * n, round(share * n)) for share in shares):
        yield f"an accuracy is no share of {n} images"
        return
    if not _same(accuracy.mean, sum(shares) / len(shares)):
        yield f"its mean {accuracy.mean:.6g} is not that of its trainings"
    wanted = share_interval(shares, n)
    if spread_alone and len(shares) > 1:
        reach, mean = spread_reach(shares), accuracy.mean
        wanted = max(0.0, mean - reach), min(1.0, mean + reach)
    if wanted and accuracy.interval and _apart(wanted, accuracy.interval):
        yield f"its interval is not {_text(wanted)}"


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=EXACT, abs_tol=EXACT)


def within(value: float, bounds: Interval) -> bool:
    """Whether a value is inside of its resampled bounds, as far as these can be told."""
    low, high = bounds
    slack = WOBBLE * (high - low) + EXACT * (1 + abs(value))
    return low - slack <= value <= high + slack


def _apart(one: Interval, other: Interval) -> bool:
    """Whether two intervals of one thing differ by more than resampling can."""
    width = max(one[1] - one[0], EXACT)
    slack = WOBBLE * width + ROUNDED * max(map(abs, one))
    return not all(abs(a - b) <= slack for a, b in zip(one, other, strict=True))


def _text(bounds: Interval) -> str:
    return f"[{bounds[0]:.6g}, {bounds[1]:.6g}]"


def shown(value: float | None) -> str:
    """A number as messages give it."""
    return "missing" if value is None else f"{value:.6g}"

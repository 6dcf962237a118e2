"""Whether a record's numbers follow from one another: what editing one of them by hand breaks.

A record's id says that nobody changed it since it was sealed; sealing is open to everyone. What
is summed up stands beside what it sums up, though, and has to agree with it. Pure, and torch is
not needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from harness.api.errors import UsageError
from harness.api.knowledge import Channel
from harness.asking.request import parse_one, parse_stack
from harness.rng import KeyedStream, board_key
from harness.scoring.ceilings import LABELS, MOST_DB, POOLED, Proof, Reached
from harness.scoring.flags import accuracy_flags, below_null, undefined_targets
from harness.scoring.summary import (
    CONFIDENCE,
    OTHERS,
    PROPORTION,
    ByImage,
    Interval,
    MetricScore,
    array,
    guess_name,
    mean_intervals,
    proportion_interval,
    share_interval,
    spread_reach,
)
from harness.scoring.utility import Accuracy, Utility
from harness.scoring.verdict import MAIN_METRIC
from harness.store.record import SCHEMAS, RunRecord

Column = NDArray[np.float64]
"""[targets], NaN where undefined."""

ROUNDED = 1e-5
"""Scores by image keep six digits: their sums may be off by this much of the largest of them."""
EXACT = 1e-9
"""What is computed from numbers of the record itself may be off by this much of them."""
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""Judging on another machine may move a number by this share of it, or by this much."""
DECIBELS = 1e-2
"""Likewise of numbers in decibels."""
FLIPS = 0.01
"""On this share of images a metric of yes and no may answer otherwise, where two are as near."""
IMAGES, PAIRED, WHOLE, BOUNDED = 4, 5, 6, 7
"""Versions of records: from which on scores by image are kept, and what each gain is the mean of,
and every null, and what ceilings say. Before `PAIRED`, intervals of several trainings are of their
spread alone."""
DRAWN = (6.875, 29.375)
"""The interval of eight squares, by the resamples that all records were made with."""
GAP = 1e-6
"""Decibels by which a ceiling, what was reached and their gap may disagree: order of sums."""
ABOVE = "above_ceiling"
OF_ACCURACY = frozenset({"beyond_unprotected", "inference_outdoes"})
"""Flags that follow from accuracies alone."""
FAR = 1.5
"""Intervals so many times further apart than they need be are brought together by no resampling."""
WOBBLE = 0.1
"""Resampled bounds may be off by this share of their distance, lest a new scipy break a board."""


@np.errstate(all="ignore")  # somebody may have written numbers that nobody can add
def faults(record: RunRecord) -> list[str]:
    """What of a record does not agree with the rest of it; nothing if all does."""
    if record.schema_ not in SCHEMAS:
        return [f"there are no records of the schema '{record.schema_}'"]
    try:
        found = [*_of_request(record), *_of_status(record)]
    except UsageError as error:
        return [f"what was asked for cannot be read: {error}"]
    for name, score in record.privacy.items():
        found += [f"{name}: {fault}" for fault in _of_score(score)]
    found += [*_of_members(record), *_of_images(record), *_of_flags(record)]
    found += [*_of_ceilings(record), *_of_crossings(record)]
    if record.utility:
        checked = _of_utility(record.utility, record.request.repeats, record.version < PAIRED)
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


def _of_members(record: RunRecord) -> Iterator[str]:
    """Each attack of many against itself, and the worst case is no better than any of them."""
    for who, member in record.members.items():
        for name, score in member.privacy.items():
            yield from (f"{who}: {name}: {fault}" for fault in _of_score(score))
            worst = record.privacy.get(name)
            if not worst or worst.mean is None or score.mean is None or worst.n != score.n:
                continue
            sign = 1 if score.leaks_more == "higher" else -1
            if sign * (worst.mean - score.mean) < -ROUNDED * abs(score.mean):
                yield f"{name}: '{who}' alone has {score.mean:.6g}, more than all together"


def _of_images(record: RunRecord) -> Iterator[str]:
    """Summaries against the scores by image that they sum up."""
    if record.members:
        if record.by_image:
            yield "it names many attacks, and scores by image are of one"
        return
    if record.version < IMAGES:
        if record.by_image:
            yield f"records of version {record.version} hold no scores by image"
        return
    scored = {name for name, score in record.privacy.items() if score.mean is not None}
    shown = scored & record.by_image.keys()
    if scored != shown:
        yield f"there are no scores by image of {', '.join(sorted(scored - shown))}"
    kept = {name: _Kept.of(record, name) for name in sorted(shown)}
    askew = {name: fault for name, each in kept.items() if (fault := each.askew)}
    yield from (f"{name}: {fault}" for name, fault in askew.items())
    whole = {name: each for name, each in kept.items() if name not in askew}
    bounds = _resampled(record, whole)
    for name, each in whole.items():
        found = [*_of_nulls(each), *_of_sums(each), *_of_bounds(each, *bounds[name])]
        yield from (f"{name}: {fault}" for fault in found)
    targets = record.splits.get("targets")
    columns = record.by_image.values()
    lengths = {len(column) for each in columns for column in (each.attack, each.guess) if column}
    drawn = {
        len(column) % (targets or 1) for each in columns for column in (each.misplaced, each.easier)
    }
    if lengths - {targets} or drawn - {0}:
        yield f"there are scores of {sorted(lengths)} images, not of its targets"


def _of_flags(record: RunRecord) -> Iterator[str]:
    """Flags that follow from scores are there, and no others of their name."""
    there = {flag.name for flag in record.flags}
    wanted = {flag.name for flag in accuracy_flags(record.utility)}
    for name in sorted((wanted ^ there) & OF_ACCURACY):
        follows = name in wanted
        yield f"its accuracy {'asks for' if follows else 'does not bear out'} the flag {name}"
    if record.members:
        return
    for name, flags in (("below_null", below_null), ("undefined_targets", undefined_targets)):
        follows = bool(flags(record.privacy))
        if follows != (name in there):
            yield f"its scores {'ask for' if follows else 'do not bear out'} the flag {name}"


def _of_ceilings(record: RunRecord) -> Iterator[str]:
    """Each ceiling against itself, and what was reached of it against both."""
    for name, proof in record.ceilings.items():
        found = [*_of_proof(proof)]
        for attack, reached in proof.reached.items():
            found += [f"'{attack}': {fault}" for fault in _of_bound(record, attack, proof)]
            found += [f"'{attack}': {fault}" for fault in _of_reached(record, attack, reached)]
            found += [f"'{attack}': {fault}" for fault in _of_gap(proof, reached)]
        yield from (f"ceiling '{name}': {fault}" for fault in found)


def _of_proof(proof: Proof) -> Iterator[str]:
    if bool(proof.reason) == bool(proof.quantities) or (proof.reason and proof.reached):
        yield "it has numbers and a reason why it has none, or neither"
    for name, quantity in proof.quantities.items():
        if quantity.interval and not within(quantity.value, quantity.interval):
            yield f"its {name} {quantity.value:.6g} is outside of its interval"
    for name in sorted({*proof.vacuous} - proof.quantities.keys()):
        yield f"it says that {name} is vacuous and does not have it"


def _of_bound(record: RunRecord, attack: str, proof: Proof) -> Iterator[str]:
    """An attack is held against the ceiling of whoever knows as much, and against none in secret.

    What companions are given stands in no record; nor is anybody bounded who is told the truth.
    """
    channels = {record.attack.name: record.channels_used}
    channels |= {name: member.channels_used for name, member in record.members.items()}
    if attack not in channels or any(flag.name == "unranked" for flag in record.flags):
        return
    wanted = POOLED + LABELS * (Channel.LABELS in channels[attack])
    if Channel.CANDIDATES in channels[attack] or wanted not in proof.quantities:
        wanted = ""
    if (bound := proof.reached[attack].bound) != wanted:
        named = [repr(each) if each else "nothing" for each in (wanted, bound)]
        yield f"by what it is given, {named[0]} bounds it, and the record says {named[1]}"


def _of_reached(record: RunRecord, attack: str, reached: Reached) -> Iterator[str]:
    """What an attack reached by itself, and beside its scores by image where these are kept."""
    if reached.interval and not within(reached.value, reached.interval):
        yield f"what it reached, {reached.value:.6g} dB, is outside of its interval"
    kept = record.by_image.get(MAIN_METRIC) if attack == record.attack.name else None
    if kept and kept.attack and None not in kept.attack:
        scores = array(kept.attack)
        # A pooled ratio is a mean of the images' own, weighted by how much noise each has.
        if not scores.min() - DECIBELS <= reached.value <= scores.max() + DECIBELS:
            yield (
                f"what it reached, {reached.value:.6g} dB, is outside of its scores by image, "
                f"{scores.min():.6g} to {scores.max():.6g}"
            )


def _of_gap(proof: Proof, reached: Reached) -> Iterator[str]:
    """What was reached, its ceiling and the share by which errors differ are one equation."""
    if bool(reached.bound) != (reached.over is not None):
        yield "it has a bound and no gap to it, or the other way round"
        return
    if reached.over is None:
        return
    ceiling = proof.quantities.get(reached.bound)
    if ceiling is None:
        yield f"it is held against {reached.bound}, which the ceiling does not have"
        return
    if MOST_DB in (abs(ceiling.value), abs(reached.value)):
        return  # decibels end there, and shares do not
    gap = ceiling.value - reached.value
    told = 10 * math.log10(1 + reached.over) if reached.over > -1 else -math.inf
    if not abs(told - gap) <= GAP:
        yield (
            f"it is {told:.6g} dB below by its squared errors, and {gap:.6g} by {reached.bound} "
            f"{ceiling.value:.6g} and {reached.value:.6g} reached"
        )


def _of_crossings(record: RunRecord) -> Iterator[str]:
    """Who is surely above a ceiling is flagged, and nobody who is not above.

    What every target's error is stands in no record. So the flag is held to whether the attack is
    above at all, and to two intervals that lie so far apart that a paired one is above zero too.
    """
    flags = [flag.message for flag in record.flags if flag.name == ABOVE]
    held = [
        (attack, each, proof)
        for proof in record.ceilings.values()
        for attack, each in proof.reached.items()
        if each.bound in proof.quantities
    ]
    gaps = [(attack, each.bound, -(each.over or 0.0)) for attack, each, _ in held]
    above = {crossing(*gap) for gap in gaps if gap[2] > 0}
    for message in flags:
        if not any(message.startswith(opening) for opening in above):
            yield f"nothing that was reached bears out the flag {ABOVE}: {message}"
    for gap, (attack, each, proof) in zip(gaps, held, strict=True):
        flagged = any(message.startswith(crossing(*gap)) for message in flags)
        if _far_above(each, proof) and not flagged:
            yield f"'{attack}' is surely above {each.bound} and not flagged as {ABOVE}"


def crossing(attack: str, bound: str, by: float) -> str:
    """How the message of the flag begins."""
    return f"'{attack}' has a squared error {by:.1%} below what {bound} allows"


def _far_above(reached: Reached, proof: Proof) -> bool:
    """Whether it is further above than its intervals allow, corrected for how many attacks."""
    ceiling = proof.quantities[reached.bound]
    if not (reached.interval and ceiling.interval):
        return False
    normal = NormalDist()
    many = normal.inv_cdf(1 - (1 - CONFIDENCE) / len(proof.reached))
    widths = reached.value - reached.interval[0] + ceiling.interval[1] - ceiling.value
    reach = many / normal.inv_cdf((1 + CONFIDENCE) / 2) * widths
    return reached.value - ceiling.value > FAR * reach


@dataclass(frozen=True, eq=False)
class _Kept:
    """One metric of a record: its summary, and what that sums up image by image.

    `nulls` are all since version 6, with the gain's pairs since version 5: the best guess, and the
    attack's answers to others. One of these two is the best null of all.
    """

    score: MetricScore
    by_image: ByImage
    version: int

    @classmethod
    def of(cls, record: RunRecord, name: str) -> _Kept:
        return cls(record.privacy[name], record.by_image[name], record.version)

    @property
    def paired(self) -> bool:
        return self.version >= PAIRED

    @property
    def sign(self) -> int:
        return 1 if self.score.leaks_more == "higher" else -1

    @cached_property
    def attack(self) -> Column:
        return array(self.by_image.attack)

    @cached_property
    def nulls(self) -> dict[str, Column]:
        kept, guess = self.by_image, array(self.by_image.guess)
        found = {null: array(column) for null, column in kept.nulls.items()}
        found[guess_name(self.score)] = guess
        if kept.misplaced:
            found[OTHERS] = (kept.draws + kept.corrections).mean(0)
        elif self.paired:  # an attack that shows nothing is the guess
            found[OTHERS] = guess
        return found

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """[targets]: which of them are summed up; before version 5, all that have a score."""
        columns = [self.attack, *(self.nulls.values() if self.paired else ())]
        found: NDArray[np.bool_] = np.logical_and.reduce([np.isfinite(each) for each in columns])
        return found

    @cached_property
    def gains(self) -> Column | None:
        """[targets] over the best null, NaN where undefined; None where that null is not kept."""
        null = self.nulls.get(self.score.null_name or "") if self.paired else None
        return None if null is None else self.sign * (self.attack - null)

    @cached_property
    def slack(self) -> float:
        """What rounding scores by image may move a mean by."""
        columns = [self.attack, *self.nulls.values()]
        known = np.abs(np.concatenate([each[self.there] for each in columns]))
        return ROUNDED * float(np.nanmax(known, initial=1e-3))

    @property
    def askew(self) -> str:
        """What is wrong with its columns themselves."""
        score, kept, n = self.score, self.by_image, len(self.by_image.attack)
        drawn = len(kept.misplaced)
        if (
            {len(kept.guess), *map(len, kept.nulls.values())} != {n}
            or drawn % max(1, n)
            or len(kept.easier) not in (0, drawn)
        ):
            return f"there are {n} scores and {len(kept.guess)} guesses"
        if (kept.leaks_more, kept.unit) != (score.leaks_more, score.unit):
            return "its scores by image have another direction or unit"
        if score.n + score.undefined != n or np.isfinite(self.attack).sum() < score.n:
            return f"{score.n} of {n} images cannot be what it sums up"
        if self.version >= WHOLE and self.there.sum() != score.n:
            return f"{score.n} of {n} images are summed up, and {self.there.sum()} have all scores"
        return ""

    @property
    def adds_up(self) -> bool:
        """Whether what is kept is all that was summed up; else some null alone has no value."""
        return int(self.there.sum()) == self.score.n


def _of_nulls(kept: _Kept) -> Iterator[str]:
    """The mean of each null that is kept by image, and before version 5 that the best is not."""
    score = kept.score
    if kept.version >= WHOLE and kept.nulls.keys() != score.nulls.keys():
        odd = ", ".join(sorted(kept.nulls.keys() ^ score.nulls.keys()))
        yield f"not every null has both a mean and scores by image: {odd}"
    if kept.paired and OTHERS not in score.nulls:
        yield f"it has no null '{OTHERS}'"
    guessed = _alike(kept.attack, kept.nulls[guess_name(score)])
    if kept.paired and not (kept.by_image.misplaced or guessed):
        yield "it does not say what its answers score where others are true"
    if not kept.adds_up:
        return
    means = {name: float(each[kept.there].mean()) for name, each in kept.nulls.items()}
    for name, wanted in means.items() if kept.paired else ():
        stated = score.nulls.get(name)
        if stated is not None and not abs(stated - wanted) <= kept.slack:
            yield (
                f"its null '{name}' {shown(stated)} is not {wanted:.6g}, which its scores by image "
                "give"
            )
    best = max(kept.sign * mean for mean in means.values())
    if score.null is not None and kept.sign * score.null > best + kept.slack:
        yield f"its null {score.null:.6g} is better than the best of its nulls by image"


def _alike(one: Column, other: Column) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))


def _of_sums(kept: _Kept) -> Iterator[str]:
    if not kept.adds_up:
        return
    score, values, sign = kept.score, kept.attack[kept.there], kept.sign
    expected = {
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "median": float(np.median(values)),
        "worst": sign * float((sign * values).max()),
    }
    for name, wanted in expected.items():
        stated = getattr(score, name)
        if stated is None or not abs(stated - wanted) <= kept.slack:
            yield f"its {name} {shown(stated)} is not {wanted:.6g}, which its scores by image give"
    at, worst = score.worst_index, expected["worst"]
    if (
        at is None
        or not 0 <= at < len(kept.attack)
        or not abs(kept.attack[at] - worst) <= kept.slack
    ):
        yield f"image {at} is not the one that leaks most"


Bounds = tuple[Interval | None, Interval | None]
"""Of a mean and of its gain."""


def _of_bounds(kept: _Kept, mean: Interval | None, gain: Interval | None) -> Iterator[str]:
    """Intervals are those that the scores by image give; before version 5, that of the mean is."""
    score, missing = kept.score, kept.paired and kept.adds_up
    named = (("interval", mean, score.ci), ("gain's interval", gain, score.gain_ci))
    for name, wanted, stated in named:
        if wanted and stated:
            if _resampled_otherwise(wanted, stated, kept.slack):
                yield f"its {name} is not {_text(wanted)}, which its scores by image give"
        elif missing and wanted != stated and (name == "interval" or kept.gains is not None):
            given = _text(wanted) if wanted else "none"
            yield f"its {name} should be {given}, which its scores by image give"


def _resampled(record: RunRecord, kept: Mapping[str, _Kept]) -> dict[str, Bounds]:
    """By metric, the bounds of its mean and gain as the judge resamples them."""
    columns: dict[tuple[str, int], Column] = {}
    for name, each in kept.items():
        there = each.there if each.paired else np.full(len(each.attack), True)
        columns[name, 0] = np.where(there, each.attack, np.nan)
        if each.gains is not None:
            columns[name, 1] = np.where(there, each.gains, np.nan)
    if not columns or len({len(column) for column in columns.values()}) > 1:
        return dict.fromkeys(kept, (None, None))
    stream = KeyedStream(board_key(record.request.seed)).stream(stage="judge")
    found = mean_intervals(np.stack([*columns.values()], axis=1), stream.stream(use="bootstrap"))
    bounds = dict(zip(columns, found, strict=True))
    return {
        name: (
            _share(each) if each.score.unit == PROPORTION else bounds[name, 0],
            bounds.get((name, 1)),
        )
        for name, each in kept.items()
    }


def _share(kept: _Kept) -> Interval | None:
    """The interval of a proportion, which is not resampled."""
    hits = float(kept.attack[kept.there].sum())
    return proportion_interval(round(hits), kept.score.n) if 0 <= hits <= kept.score.n else None


def _resampled_otherwise(wanted: Interval, stated: Interval, slack: float) -> bool:
    """Whether an interval is another one, where the same resamples are drawn here as there."""
    if _same_resamples():
        return not all(abs(a - b) <= slack for a, b in zip(wanted, stated, strict=True))
    return _apart(wanted, stated)


@cache
def _same_resamples() -> bool:
    """Whether numpy and scipy draw here what they drew where records were made.

    Another version of theirs may draw otherwise, and no board must break of that.
    """
    column = np.arange(8.0)[:, None] ** 2
    (found,) = mean_intervals(column, KeyedStream(board_key(0)).stream(use="probe"))
    return found is not None and _same(found[0], DRAWN[0]) and _same(found[1], DRAWN[1])


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


MOST_IMAGES = 1 << 53
"""What floats count exactly; no dataset comes near."""


def _of_accuracy(
    accuracy: Accuracy, n: int, repeats: set[int], spread_alone: bool
) -> Iterator[str]:
    shares = accuracy.trainings
    if not 0 < n < MOST_IMAGES:
        yield f"{n} is no number of test images"
        return
    if len(shares) not in repeats:
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


def inside(value: float, bounds: Interval | None) -> bool:
    """Whether a value is in an interval; in none where there is none."""
    return bounds is not None and bounds[0] <= value <= bounds[1]


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

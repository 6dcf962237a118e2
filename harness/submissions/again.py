"""Judging and running again, and what came out beside the numbers of the record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.errors import UsageError
from harness.api.knowledge import ReleaseKind
from harness.running.run import Observer, Run, check_machine, fingerprint
from harness.scoring.identification import Identification
from harness.scoring.matching import CODEBOOK
from harness.scoring.summary import PROPORTION, ByImage, Interval, MetricScore, guess_name
from harness.store.features import FOLDER as FEATURES
from harness.store.paths import disk_errors, scratch_folder
from harness.submissions.siblings import proven_otherwise
from harness.submissions.sums import ABSOLUTE, DECIBELS, FLIPS, RELATIVE, inside, shown

if TYPE_CHECKING:
    from harness.running.rejudge import Rejudged, Rescored
    from harness.scoring.ceilings import Proof
    from harness.store.answers import Answer
    from harness.store.artifacts import Store
    from harness.store.record import RunRecord
    from harness.submissions.checks import Note

ROUNDING = 0.01
"""What rounding to eight bits may move a score by that is not in decibels."""
FLIPPED = 0.03
"""On this share of rounded answers a metric of yes and no may answer otherwise."""
SUMS = ("mean", "std", "median", "worst", "null", "gain")
SHARED = ("assets", FEATURES)
"""What a fresh cache shares with the one that is there: data, and a public network's features."""


def judged_again(
    record: RunRecord, reconstruction: Path, release: Path | None, store: Store, observer: Observer
) -> list[Note]:
    """What the attack of a record returned, judged by what is installed here.

    UsageError, AssetUnavailable or CellFailed where the judge cannot do it.
    """
    check_machine("cpu")
    from harness.running.rejudge import rejudge

    found = rejudge(record, reconstruction, release, store, observer)
    differing, missing = judged_otherwise(record, found), unmeasured(record.privacy, found.privacy)
    notes: list[Note] = [("differs", f"judged again, {text}") for text in differing]
    notes += [("cannot", f"judging again by {text}") for text in missing]
    return notes or [("ok", "judged again: the same")]


def answers_judged_again(
    record: RunRecord, path: Path, store: Store, observer: Observer
) -> list[Note]:
    """What a board keeps of a record's answer, and guesses, judged by what is installed here.

    IntegrityError where there is no such answer; UsageError, AssetUnavailable or CellFailed where
    the judge cannot do it.
    """
    check_machine("cpu")
    from harness.running.rejudge import rescore
    from harness.store.answers import read_answer

    answer = read_answer(path)
    found = rescore(record, answer, store, observer)
    scored = [name for name in record.by_image if record.privacy[name].mean is not None]
    missing = [name for name in scored if name not in found.scores]
    notes: list[Note] = [
        ("differs", f"judged again, {name}: {text}")
        for name in scored
        if name in found.scores
        for text in _answered_otherwise(record, name, answer, found)
    ]
    notes += [("cannot", f"judging again by {name}: it cannot be scored here") for name in missing]
    of = f"{len(answer)} of {record.splits.get('targets')} answers"
    return notes or [("ok", f"judged again: {of} and all guesses score the same")]


def _answered_otherwise(
    record: RunRecord, name: str, answer: Answer, found: Rescored
) -> Iterator[str]:
    """What a kept answer scores otherwise than the record says, beyond what rounding can do."""
    kept, unit = record.by_image[name], record.by_image[name].unit
    pairs = zip(kept.attack, kept.guess, answer.found, strict=False)
    now = zip(found.scores[name], found.rounding[name], strict=True)
    wrong = [
        f"{shown(score)}, not {shown(stated)}"
        for (stated, guess, there), (score, rounding) in zip(pairs, now, strict=True)
        if (stated != guess if not there else not _rounds_to(stated, score, rounding, unit))
    ]
    if len(wrong) > _flipped(len(answer), unit):
        yield f"{len(wrong)} of {len(answer)} answers score otherwise, the first {wrong[0]}"
    if CODEBOOK in record.privacy[name].nulls:
        return  # what the truth was consulted for cannot be told of a part
    others = found.misplaced[name]
    draws = kept.draws[:, : len(answer)].flatten().tolist()
    if moved := _moved_by_rounding(draws, others, unit) if kept.misplaced else 0:
        yield f"{moved} of {len(others)} answers score otherwise where others are true"
    if kept.easier and (moved := _moved(kept.easier, _known(found.easier[name]), unit)):
        yield f"{moved} of {len(kept.easier)} others are easier to guess than it says"
    guesses = {**kept.nulls, guess_name(record.privacy[name]): kept.guess}
    for null, column in guesses.items():
        if moved := _moved(column, _known(found.nulls[name].get(null, ())), unit):
            yield f"the guess '{null}' scores otherwise on {moved} of {len(column)} images"


def _known(column: Sequence[float]) -> list[float | None]:
    """As records keep a column."""
    return [None if math.isnan(value) else value for value in column]


def _moved_by_rounding(stated: Sequence[float], found: Sequence[float], unit: str) -> int:
    """How many scores of answers that are far from the truth are others."""
    slack = 10 * DECIBELS if unit == "dB" else ROUNDING
    count = max(len(stated), len(found))
    if len(stated) == len(found):
        pairs = zip(stated, found, strict=True)
        count = sum(not math.isclose(a, b, rel_tol=slack, abs_tol=slack) for a, b in pairs)
    return count if count > _flipped(len(found), unit) else 0


def _flipped(count: int, unit: str) -> float:
    """Of how many answers rounding may turn a metric of yes and no."""
    return max(1.0, FLIPPED * count) if unit == PROPORTION else 0.0


def _rounds_to(stated: float | None, score: float, rounding: float, unit: str) -> bool:
    """Whether an answer with the `stated` score can have this one when it is rounded.

    Of decibels: the error's length changes by no more than what was rounded off has. `rounding` is
    the score of an image that is off by that everywhere.
    """
    if stated is None or math.isnan(score):
        return stated is None and math.isnan(score)
    if unit != "dB":
        return abs(stated - score) <= ROUNDING * max(1.0, abs(stated))
    was, now, most = (10 ** (-each / 20) for each in (stated, score, rounding))
    return abs(was - now) <= most or abs(stated - score) <= DECIBELS


def judged_otherwise(record: RunRecord, found: Rejudged | RunRecord) -> Iterator[str]:
    """What of a record is not what judging again gave, beyond rounding; nothing if all is."""
    for name in measured(record.privacy, found.privacy):
        others = [*_sums(record.privacy[name], found.privacy[name])]
        if name in record.by_image and name in found.by_image:
            others += _columns(record.by_image[name], found.by_image[name])
        if others:
            yield f"{name}: {', '.join(others)}"
    for name, finding in record.findings.items():
        other = found.findings.get(name)
        if other is None:
            yield f"{name}: it is not found again"
        elif not _near(finding.value, other.value, finding.unit):
            yield f"{name}: it is {other.value:.6g}, not {finding.value:.6g}"
    if not _same_identification(record.identification, found.identification):
        yield "another share of images is identified"


def measured(one: Mapping[str, MetricScore], other: Mapping[str, MetricScore]) -> list[str]:
    """Metrics that have a number on both sides."""
    return [n for n in one if _has(one, n) and _has(other, n)]


def unmeasured(one: Mapping[str, MetricScore], other: Mapping[str, MetricScore]) -> list[str]:
    """Metrics of `one` without a number in the `other`, with the reason there."""
    missing = [name for name in one if _has(one, name) and not _has(other, name)]
    return [f"{n}: {other[n].unavailable if n in other else 'not installed'}" for n in missing]


def _has(scores: Mapping[str, MetricScore], name: str) -> bool:
    return name in scores and scores[name].mean is not None


def _sums(one: MetricScore, other: MetricScore) -> Iterator[str]:
    if one.unit == PROPORTION:
        if abs((one.mean or 0) - (other.mean or 0)) > FLIPS:
            yield f"its mean is {other.mean:.6g}, not {one.mean:.6g}"
        return
    for field in SUMS:
        stated, found = getattr(one, field), getattr(other, field)
        if not _near(stated, found, one.unit):
            yield f"its {field} is {shown(found)}, not {shown(stated)}"


def _columns(one: ByImage, other: ByImage) -> Iterator[str]:
    for field in ("attack", "guess", "misplaced", "easier"):
        stated, found = getattr(one, field), getattr(other, field)
        if moved := _moved(stated, found, one.unit):
            yield f"{moved} of {len(found)} scores by image ({field}) are others"
    for null in sorted(one.nulls.keys() & other.nulls.keys()):
        if moved := _moved(one.nulls[null], other.nulls[null], one.unit):
            yield f"{moved} of {len(other.nulls[null])} scores by image of '{null}' are others"


def _moved(stated: Sequence[float | None], found: Sequence[float | None], unit: str) -> int:
    """How many scores are others; 0 where so few are that two were as near."""
    count = max(len(stated), len(found))
    if len(stated) == len(found):
        count = sum(not _near(a, b, unit) for a, b in zip(stated, found, strict=True))
    return count if count > FLIPS * len(found) * (unit == PROPORTION) else 0


def _near(stated: float | None, found: float | None, unit: str) -> bool:
    if stated is None or found is None:
        return stated is found
    slack = DECIBELS if unit == "dB" else max(ABSOLUTE, RELATIVE * abs(stated))
    return abs(stated - found) <= slack


def _same_identification(one: Identification | None, other: Identification | None) -> bool:
    if one is None or other is None:
        return one is other
    values = [(stated, getattr(other, name)) for name, stated in one if isinstance(stated, float)]
    return all(isinstance(b, float) and abs(a - b) <= FLIPS for a, b in values)


@contextmanager
def fresh_cache(root: Path) -> Iterator[Path]:
    """A cache in which nothing was ever run; gone at the end."""
    with scratch_folder(root, "replay") as folder:
        with disk_errors(folder):
            for name in SHARED:
                (root / name).mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(root.absolute() / name)
        yield folder


def run_again(record: RunRecord, kept: Path | None, cache: Path, observer: Observer) -> list[Note]:
    """A record's cell, run by what is installed here.

    Where what left then was `kept`, and is not what leaves now to the bit, its attack and learners
    are also run on that. Cells that are run in one cache share releases and trainings. UsageError
    or AssetUnavailable for what cannot be run here.
    """
    if record.seeds.get("owner_key") != fingerprint(None):
        raise UsageError("it was made with an owner's key of its own, which its owner keeps")
    options = record.request.model_dump()
    options |= {"threads": record.threads, "device": "auto"}
    run = Run.open(options, cache=cache, observer=observer)
    other = run.result()
    if kept and not _same_release(record, other):
        from harness.running.rejudge import on_release

        again = on_release(record, kept, run.cell, run.store, observer)
        if found := outside(record, again):
            return [("differs", f"run on the kept release, {'; '.join(found)}")]
    if same_bits(record, other):
        return [("ok", "run again: the same to the bit")]
    if found := outside(record, other):
        return [("differs", f"run again, {'; '.join(found)}")]
    return [("ok", "run again: within its intervals")]


def _same_release(record: RunRecord, other: RunRecord) -> bool:
    """Whether what left is the same to the bit; of other kinds than encodings nothing is said."""
    if record.release_kind != ReleaseKind.ENCODINGS or record.parties or other.status != "ok":
        return True
    here, there = (each.artifacts.get("release") for each in (record, other))
    return here is not None and there is not None and here.sha256 == there.sha256


def same_bits(record: RunRecord, other: RunRecord) -> bool:
    """Whether two runs of a cell came to the same numbers, to the last digit."""
    names = ["status", "privacy", "by_image", "findings", "identification", "utility", "members"]
    names += ["ceilings"] if record.ceilings else []  # versions before the seventh had none
    return all(getattr(record, name) == getattr(other, name) for name in names)


def outside(record: RunRecord, other: RunRecord) -> list[str]:
    """What another run of a cell measured outside of the record's 95% intervals."""
    if record.status != other.status:
        return [
            f"it ended as {other.status}, not {record.status}: {other.error or ''}".rstrip(": ")
        ]
    found: list[str] = []
    for name in measured(record.privacy, other.privacy):
        one, now = record.privacy[name], other.privacy[name]
        found += _strays(name, one.mean, one.ci, now.mean, one.unit)
    for name, finding in record.findings.items():
        value = other.findings[name].value if name in other.findings else None
        found += _strays(name, finding.value, finding.ci, value, finding.unit)
    for name, proof in record.ceilings.items():
        found += _bounded_otherwise(name, proof, other.ceilings.get(name))
    if record.utility:
        stated, bounds = record.utility.accuracy, record.utility.interval
        value = other.utility.accuracy if other.utility else None
        found += _strays("accuracy", stated, bounds, value)
    return found


def _bounded_otherwise(name: str, proof: Proof, now: Proof | None) -> Iterator[str]:
    """What a ceiling says now, and what was reached of it: noise is drawn alike."""
    if now is None:
        yield f"the ceiling '{name}' says nothing any more"
        return
    if told := proven_otherwise(proof, now):
        yield f"ceiling '{name}': {told}"
    for attack, reached in proof.reached.items():
        found = now.reached.get(attack)
        if found is None:
            yield f"ceiling '{name}': nothing is reached by '{attack}'"
        else:
            what = f"what '{attack}' reached of {name}"
            yield from _strays(what, reached.value, reached.interval, found.value, "dB")


def _strays(
    name: str,
    stated: float | None,
    bounds: Interval | None,
    value: float | None,
    unit: str | None = None,
) -> Iterator[str]:
    """That a value is outside of its bounds; where a `unit` is given, by more than rounding."""
    if value is not None and inside(value, bounds):
        return
    if unit is None or not _near(stated, value, unit):
        text = f"[{bounds[0]:.4g}, {bounds[1]:.4g}]" if bounds else shown(stated)
        yield f"{name} is {shown(value)}, outside of {text}"

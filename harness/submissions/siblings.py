"""What records of one release, or of the same images, have to agree on. Pure; torch is not needed.

That a record's sums agree does not say that its accuracy, its nulls or its release are those of its
cell: whoever edits them edits the sums too. But records of one release share these, and an edited
one says otherwise than its siblings. What made them counts by its source: records of older source
are held against their like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.api.knowledge import ReleaseKind
from harness.scoring.ceilings import Proof
from harness.scoring.matching import CODEBOOK
from harness.scoring.summary import OTHERS, PROPORTION, ByImage, MetricScore, array, guess_name
from harness.scoring.utility import Utility
from harness.store.provenance import canonical_json
from harness.store.record import SCHEMAS, RunRecord, Used
from harness.submissions.sums import (
    ABSOLUTE,
    DECIBELS,
    EXACT,
    FLIPS,
    PAIRED,
    RELATIVE,
    Column,
    inside,
    shown,
)

NAMED = 12
"""Letters of a record's id in a message."""

Told = Callable[[RunRecord, RunRecord], str]
"""What two records say otherwise of one thing; "" where they agree."""


@dataclass(frozen=True)
class Matter:
    """One thing to agree on.

    Records with the same `shared` do, None stands for those that have no part in it; `elsewhere`
    compares records of two machines.
    """

    shared: Callable[[RunRecord], Any]
    told: Told
    elsewhere: Told


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Two records that say otherwise of one thing, and how many more say otherwise than `one`."""

    one: RunRecord
    other: RunRecord
    told: str
    more: int = 0

    def __str__(self) -> str:
        also = f", and {self.more} more do" if self.more else ""
        return f"{_named(self.one)} and {_named(self.other)} disagree{also}: {self.told}"


def _named(record: RunRecord) -> str:
    request = record.request
    return f"record {record.id[:NAMED]} ({request.defense} × {request.attack})"


def disagreements(records: Iterable[RunRecord]) -> Iterator[Disagreement]:
    """Of each thing that several records share, the first that says otherwise than most."""
    kept = list(records)
    for matter in MATTERS:
        for group in _groups(kept, matter).values():
            apart = _apart(group[0], group, matter)
            if 2 * len(apart) > len(group):
                apart = _apart(apart[0].other, group, matter)
            if apart:
                first = apart[0]
                yield Disagreement(first.one, first.other, first.told, len(apart) - 1)


def _apart(one: RunRecord, group: Iterable[RunRecord], matter: Matter) -> list[Disagreement]:
    told = ((other, matter.told(one, other)) for other in group)
    return [Disagreement(one, other, text) for other, text in told if text]


def between(
    own: Iterable[RunRecord], others: Iterable[RunRecord], *, here: bool
) -> Iterator[Disagreement]:
    """Where any of `others` says otherwise than `own`; unless `here`, it is of another machine."""
    kept, compared = list(own), list(others)
    for matter in MATTERS:
        told, known = matter.told if here else matter.elsewhere, _groups(kept, matter)
        for key, group in _groups(compared, matter).items():
            for other in group if key in known else ():
                if text := told(known[key][0], other):
                    yield Disagreement(known[key][0], other, text)


def _groups(records: Iterable[RunRecord], matter: Matter) -> dict[str, list[RunRecord]]:
    found: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        known = record.status == "ok" and record.schema_ in SCHEMAS
        if known and (shared := matter.shared(record)) is not None:
            found[canonical_json(shared)].append(record)
    return found


def _plugin(used: Used | None) -> Any:
    """A plugin as it was installed and configured."""
    fields = {"name", "version", "source_sha256", "config"}
    return used and used.model_dump(mode="json", include=fields)


def _images(record: RunRecord) -> Any:
    """The private, public and test images."""
    request, sizes = record.request, dict(record.splits)
    sizes.pop("targets", None)
    asked = [request.private_size, request.public_size, request.test_size, request.preset]
    return [_plugin(record.dataset), _plugin(record.public), sizes, asked, request.seed]


def _released(record: RunRecord) -> Any:
    """What leaves the owner; encodings do not depend on a victim or on who is judged."""
    request, kind = record.request, record.release_kind
    trained: list[Any] = []
    if kind != ReleaseKind.ENCODINGS:
        late: list[Any] = [request.batch_size, request.victim_epochs, request.bn_mode]
        if kind == ReleaseKind.UPDATES:
            late += [request.local_steps, request.local_lr, request.together]
        judged = [request.targets_from, record.splits.get("targets")]
        trained = [_plugin(record.victim), *_hardware(record), late, judged]
    defenses = [_plugin(used) for used in record.defense]
    owner = record.seeds.get("owner_key")
    return [_images(record), _plugin(record.space), defenses, owner, request.rounds, kind, trained]


def _learned(record: RunRecord) -> Any:
    """What is learned from a release, by whom, and with how much effort."""
    if record.utility is None:
        return None
    request = record.request
    learners = {name: _plugin(used) for name, used in record.learners.items()}
    effort = [request.repeats, request.time_limit, request.megabytes, request.targets_from]
    by = [request.learner, learners, effort, _hardware(record)]
    return [_released(record), _plugin(record.victim), *by]


def _hardware(record: RunRecord) -> list[Any]:
    """What decides the numbers of a training besides its seed."""
    return [record.device, record.threads, record.request.precision, record.precision]


def _judged(record: RunRecord) -> Any:
    """Which images guesses without a release are judged on, where matching does not help them."""
    scores = record.privacy.values()
    if record.version < PAIRED or any(CODEBOOK in score.nulls for score in scores):
        return None
    targets = record.splits.get("targets")
    at = _released(record) if record.request.judge_at == "release" else None
    return [_images(record), _plugin(record.space), record.request.targets_from, targets, at]


def _of_artifact(name: str, what: str) -> Told:
    """That two records name the same bytes, where both name any."""

    def told(one: RunRecord, other: RunRecord) -> str:
        here, there = (record.artifacts.get(name) for record in (one, other))
        if not here or not there or here.sha256 == there.sha256:
            return ""
        return f"{what} {here.sha256[:NAMED]} and {there.sha256[:NAMED]}"

    return told


def _of_utility(one: RunRecord, other: RunRecord) -> str:
    """To the last digit: records of one release report one training."""
    here, there = (_numbers(record.utility) for record in (one, other) if record.utility)
    for name in {**here, **there}:
        a, b = here.get(name), there.get(name)
        if a is None or b is None or abs(a - b) > EXACT:
            return f"{name} is {shown(a)} and {shown(b)}"
    return ""


def _numbers(utility: Utility) -> dict[str, float]:
    """What was measured, by what messages call it."""
    own: dict[str, float | None] = {
        "accuracy": utility.accuracy,
        "accuracy without protection": utility.reference_accuracy,
        "accuracy by chance": utility.chance,
        "number of test images": utility.n,
    }
    parts: Mapping[str, Mapping[str, float]] = {
        "accuracy of": {name: each.mean for name, each in utility.accuracies.items()},
        "accuracy on images to choose by of": utility.validation,
        "accuracy without protection of": {
            name: each.mean for name, each in utility.reference_accuracies.items()
        },
        "unprotected accuracy on images to choose by of": utility.reference_validation,
    }
    own |= {f"{what} '{name}'": v for what, part in parts.items() for name, v in part.items()}
    return {name: value for name, value in own.items() if value is not None}


def _of_accuracy(one: RunRecord, other: RunRecord) -> str:
    """Within each other's intervals: another machine trains a network otherwise."""
    here, there = one.utility, other.utility
    if not here or not there:
        return ""
    near = abs(here.accuracy - there.accuracy) <= EXACT
    if near or inside(here.accuracy, there.interval) or inside(there.accuracy, here.interval):
        return ""
    return f"accuracy is {shown(here.accuracy)} and {shown(there.accuracy)}"


def _of_nulls(one: RunRecord, other: RunRecord) -> str:
    """What guesses score, up to what another machine may move a score by."""
    for name in sorted(one.privacy.keys() & other.privacy.keys()):
        here, there = one.privacy[name], other.privacy[name]
        if here.undefined or there.undefined or not (here.n and there.n):
            continue  # their means are of other images
        if told := _of_means(here, there) or _of_columns(
            _guesses(one, name), _guesses(other, name), here.unit
        ):
            return f"{name}: {told}"
    return ""


def _of_means(here: MetricScore, there: MetricScore) -> str:
    for null in sorted((here.nulls.keys() | there.nulls.keys()) - {OTHERS}):
        a, b = here.nulls.get(null), there.nulls.get(null)
        if a is None or b is None or abs(a - b) > _slack(here.unit, abs(a), mean=True):
            return f"null '{null}' is {shown(a)} and {shown(b)}"
    return ""


def _guesses(record: RunRecord, name: str) -> dict[str, Column]:
    kept: ByImage | None = record.by_image.get(name)
    if kept is None:
        return {}
    columns = {**kept.nulls, guess_name(record.privacy[name]): kept.guess}
    return {null: array(column) for null, column in columns.items()}


@np.errstate(all="ignore")  # somebody may have written numbers that nobody can subtract
def _of_columns(here: Mapping[str, Column], there: Mapping[str, Column], unit: str) -> str:
    for null in sorted(here.keys() & there.keys()):
        one, other = here[null], there[null]
        slack = _slack(unit, float(np.nanmax(np.abs(one), initial=0.0)))
        moved = ~(np.abs(one - other) <= slack) if len(one) == len(other) else np.full(1, True)
        if moved.mean() > (FLIPS if unit == PROPORTION else 0.0):
            return f"null '{null}' scores otherwise on {moved.sum()} of {len(one)} images"
    return ""


def _slack(unit: str, value: float, *, mean: bool = False) -> float:
    if unit == PROPORTION:
        return FLIPS if mean else ABSOLUTE
    return DECIBELS if unit == "dB" else max(ABSOLUTE, RELATIVE * value)


def _bounded(record: RunRecord) -> Any:
    """What ceilings are of: a release, and who is judged."""
    targets = record.splits.get("targets")
    return [_released(record), targets] if record.ceilings else None


def _of_ceilings(one: RunRecord, other: RunRecord) -> str:
    """What the same ceilings say, whoever reached how much of them."""
    for name in sorted(one.ceilings.keys() & other.ceilings.keys()):
        used = (_plugin(record.ceiling_plugins.get(name)) for record in (one, other))
        if len({canonical_json(each) for each in used}) > 1:
            continue
        if told := proven_otherwise(one.ceilings[name], other.ceilings[name]):
            return f"ceiling '{name}': {told}"
    return ""


def proven_otherwise(here: Proof, there: Proof) -> str:
    """What one of two proofs says that the other does not, whatever was reached; "" if nothing."""
    if bool(here.reason) != bool(there.reason):
        return "only one of them has a reason why there is none"
    for name in sorted(here.quantities.keys() | there.quantities.keys()):
        numbers = [
            None if each is None else (each.value, *(each.interval or ()))
            for each in (here.quantities.get(name), there.quantities.get(name))
        ]
        if None in numbers or not _all_near(*filter(None, numbers)):
            a, b = (shown(each[0] if each else None) for each in numbers)
            return f"{name} is {a} and {b}" + (", or its interval is another" if a == b else "")
    return "" if {*here.vacuous} == {*there.vacuous} else "only one of them says that it is vacuous"


def _all_near(here: Sequence[float], there: Sequence[float]) -> bool:
    """Up to what another machine's sums may move a number by."""
    pairs = zip(here, there, strict=False)
    near = all(abs(a - b) <= max(ABSOLUTE, RELATIVE * abs(a)) for a, b in pairs)
    return len(here) == len(there) and near


def _of_resolved(one: RunRecord, other: RunRecord) -> str:
    """How the options of one release turned out, and what is proven of it."""
    for here, there in zip(one.defense, other.defense, strict=True):
        for name in sorted(here.resolved.keys() & there.resolved.keys()):
            a, b = here.resolved[name], there.resolved[name]
            numbers = [float(each) for each in (a, b) if isinstance(each, int | float)]
            if not (_all_near(numbers[:1], numbers[1:]) if len(numbers) == 2 else a == b):
                return f"'{here.name}' turned out with {name} {a} and {b}"
    return ""


_SAME_RELEASE = _of_artifact("release", "of one release they name")
MATTERS = (
    Matter(_images, *2 * (_of_artifact("load", "of the same images they name"),)),
    Matter(_released, _SAME_RELEASE, _SAME_RELEASE),
    Matter(_released, _of_resolved, _of_resolved),
    Matter(_bounded, _of_ceilings, _of_ceilings),
    Matter(_learned, _of_utility, _of_accuracy),
    Matter(_judged, _of_nulls, _of_nulls),
)
"""What records have to agree on: images, releases, what is proven of these and learned from them,
and nulls."""

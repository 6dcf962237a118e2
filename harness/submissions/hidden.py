"""Hidden reruns: a record's cell again, on images and with a key that nobody could foresee.

Splits and owner's key of a published row follow from its seed, so that an attack may know them. In
a hidden rerun both are drawn anew: what rests on them is gone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.knowledge import ReleaseKind
from harness.rng import KeyedStream
from harness.running.run import Observer, Run
from harness.scoring.flags import DISBELIEVED, LEAST_DB, TOO_GOOD
from harness.store.record import RunRecord

if TYPE_CHECKING:
    from harness.scoring.summary import Interval
    from harness.submissions.checks import Note

SECRET_BYTES = 32
MOVED = 0.1
"""Another draw of mixtures and noise may move a gain by this share: intervals are of images."""
VISIBLE_DB = 40.0
"""A gain above is of errors that nobody sees. Where no noise is added it is as large as numbers
allow, and another draw moves it by twenty decibels."""
SUSPICIOUS = DISBELIEVED | {"above_ceiling"}
"""Flags that a hidden rerun may raise and the record does not have."""


@dataclass(frozen=True)
class Hidden:
    """What hidden reruns are drawn from: a fresh secret of the operating system."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)

    @property
    def commitment(self) -> str:
        """A hash that fixes the secret and does not tell it."""
        return hashlib.sha256(b"hidden rerun" + self.secret).hexdigest()

    def instead_of(self, seed: int) -> tuple[int, bytes]:
        """A seed and an owner's key in place of a published seed; rows of one seed share both."""
        stream = KeyedStream(self.secret).stream(instead_of=seed)
        return stream.seed(), stream.bytes(SECRET_BYTES)


def run_hidden(record: RunRecord, hidden: Hidden, cache: Path, observer: Observer) -> list[Note]:
    """A record's cell, run on other images and with another key.

    UsageError or AssetUnavailable for what cannot be run here.
    """
    published = record.request.seed
    seed, key = hidden.instead_of(published)
    options = record.request.model_dump()
    options |= {"threads": record.threads, "device": "auto", "seed": seed}
    told = f"hidden rerun under {hidden.commitment[:16]}"
    with Run.open(options, cache=cache, observer=observer, secret=key, apart_from=published) as run:
        other = run.result()
        if record.status != other.status:
            return [("differs", f"{told}: it ended as {other.status}, not {record.status}")]
        if other.status != "ok":
            return [("ok", f"{told}: it ended as {other.status} too")]
        told += f", {_of_images(run)}"
        found = [*fallen(record, other), *_newly_flagged(record, other), *_unlawful(run)]
    if found:
        return [("differs", f"{told}: {'; '.join(found)}; `refuted` in board.toml unranks it")]
    if not _comparable(record, other):
        return [("cannot", f"{told}: nothing has an interval that could be compared")]
    return [("ok", f"{told}: borne out")]


def _of_images(run: Run) -> str:
    """How many of the images were not private when the row was published."""
    from harness.running.load import OUTSIDE, LoadStage

    stage, count = LoadStage.of(run.cell), len(run.splits.private)
    outside = run.store.facts(stage.name, stage.key)[OUTSIDE]
    return f"{outside:,} of {count:,} private images outside the published split"


def fallen(record: RunRecord, other: RunRecord) -> Iterator[str]:
    """What was surely better on the published images than on others: intervals are far apart.

    Gains are compared and not scores, which depend on how easy images are.
    """
    for name, one in record.privacy.items():
        now = other.privacy.get(name)
        most = VISIBLE_DB if one.unit == "dB" else inf
        least = max(LEAST_DB if one.unit == "dB" else 0.0, MOVED * min(one.gain or 0.0, most))
        if now and _apart(one.gain_ci, now.gain_ci, least, most):
            yield f"the gain in {name} falls from {one.gain:.4g} to {now.gain:.4g}"
    if record.identification and other.identification:
        for name in ("top1", "auc"):
            ends = (getattr(each.identification, f"{name}_ci") for each in (record, other))
            if _apart(*ends):
                was, now_is = (getattr(e.identification, name) for e in (record, other))
                yield f"identification ({name}) falls from {was:.3f} to {now_is:.3f}"
    if record.utility and other.utility:
        was, now_is = record.utility, other.utility
        if _apart(was.interval, now_is.interval, TOO_GOOD):
            yield f"accuracy falls from {was.accuracy:.3f} to {now_is.accuracy:.3f}"


def _apart(
    one: Interval | None, other: Interval | None, least: float = 0.0, most: float = inf
) -> bool:
    """Whether one interval is above all of the other by more than `least`, itself cut at `most`."""
    return one is not None and other is not None and min(one[0], most) > other[1] + least


def _comparable(record: RunRecord, other: RunRecord) -> bool:
    """Whether both runs have an interval of anything that may fall."""
    gains = [each.gain_ci for n, each in record.privacy.items() if n in other.privacy]
    accuracy = record.utility and other.utility and record.utility.interval
    named = record.identification and other.identification
    return any(gains) or bool(accuracy) or bool(named)


def _newly_flagged(record: RunRecord, other: RunRecord) -> Iterator[str]:
    known = {flag.name for flag in record.flags}
    for flag in other.flags:
        if flag.name in SUSPICIOUS - known:
            yield f"flag {flag.name}: {flag.message}"


def _unlawful(run: Run) -> list[str]:
    """What of one owner's encodings is not what the secrets say, or is public; each once."""
    if run.cell.kind is not ReleaseKind.ENCODINGS or run.cell.request.parties > 1:
        return []
    from harness.running.ceiling import unlawful

    return sorted(set(unlawful(run)))

"""Flags across attacks on one release: where one of them cannot be as good as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.api import Channel, Stream
from harness.scoring.flag import Flag
from harness.scoring.identification import Identification
from harness.scoring.intervals import Interval, mean_intervals

if TYPE_CHECKING:
    from torch import Tensor

CERTAIN = 0.99
"""Top-1 from which an identification is as good as complete."""
LEAST_DB = 0.1
"""A difference that is worth a flag."""
LEAST_ERROR = 1e-6
"""Squared error a value, of values of variance one, below which nobody sees a difference."""


@dataclass(frozen=True)
class Answer:
    """What one attack reached: `scores` [n] of the main metric, signed so that more leaks more.

    `errors` [n] squared error a value; None of both where it showed no images. `after_images`:
    these are what the attack is after, and not a by-product of claims or a cheap companion.
    """

    attack: str
    channels: frozenset[Channel]
    linear: Literal["no", "yes", "optimal"]
    scores: Tensor | None
    errors: Tensor | None
    identification: Identification | None = None
    after_images: bool = True


def check_consistency(
    answers: Sequence[Answer], *, shown: bool, unit: str, stream: Stream
) -> list[Flag]:
    """All flags across attacks; `shown` says whether any reconstruction gains over its null."""
    return [
        *_knows_less(answers, unit, stream),
        *_beats_optimum(answers, stream),
        *_identified_only(answers, shown),
    ]


def _knows_less(answers: Sequence[Answer], unit: str, stream: Stream) -> Iterator[Flag]:
    """An attack that knows less beats one that knows more, by more than the interval."""
    least = LEAST_DB if unit == "dB" else 0.0
    for loser in (answer for answer in answers if answer.after_images):
        better = [
            (mean, low, winner)
            for winner in answers
            if winner.channels < loser.channels
            for mean, low, _ in _difference(winner.scores, loser.scores, stream)
            if low > least
        ]
        if better:
            mean, low, winner = max(better, key=lambda found: found[0])
            extra = ", ".join(sorted(loser.channels - winner.channels))
            yield Flag(
                name="knows_less_does_better",
                message=f"'{winner.attack}' beats '{loser.attack}', which also holds {extra}, by "
                f"{mean:.2f} {unit} (at least {low:.2f}): '{loser.attack}' makes poor use of it",
            )


def _beats_optimum(answers: Sequence[Answer], stream: Stream) -> Iterator[Flag]:
    """A linear attack has less pooled squared error than the best linear one."""
    optima = [answer for answer in answers if answer.linear == "optimal"]
    for optimum in optima:
        for other in answers:
            if other.linear != "yes":
                continue
            for mean, low, _ in _difference(optimum.errors, other.errors, stream):
                if low > LEAST_ERROR:
                    yield Flag(
                        name="linear_beats_optimum",
                        message=f"'{other.attack}' is linear and its squared error is {mean:.3g} "
                        f"(at least {low:.3g}) a value below that of '{optimum.attack}', the "
                        "optimum under its prior: the prior or the noise law does not fit",
                    )


def _identified_only(answers: Sequence[Answer], shown: bool) -> Iterator[Flag]:
    sure = [a.attack for a in answers if a.identification and a.identification.top1 >= CERTAIN]
    if sure and not shown:
        yield Flag(
            name="identified_not_reconstructed",
            message=f"{', '.join(sure)} identifies nearly every image among candidates, and no "
            "attack shows more of any than a guess does: better reconstructions must exist",
        )


def still_rising(
    attack: str, effort: str, once: Tensor, twice: Tensor, unit: str, stream: Stream
) -> list[Flag]:
    """A flag where the main metric [n] gains from twice the effort."""
    least = LEAST_DB if unit == "dB" else 0.0
    return [
        Flag(
            name="still_rising",
            message=f"'{attack}' gains {mean:.2f} {unit} (at least {low:.2f}) from twice the "
            f"{effort}: it was stopped too early to say what leaks",
        )
        for mean, low, _ in _difference(twice, once, stream)
        if low > 0 and mean >= least
    ]


def sharper(attack: str, effort: str, once: Identification, twice: Identification) -> list[Flag]:
    """A flag where twice the effort identifies more, beyond both intervals."""
    flags = []
    for name in ("top1", "auc"):
        before, after = getattr(once, f"{name}_ci"), getattr(twice, f"{name}_ci")
        if before and after and after[0] > before[1]:
            message = (
                f"'{attack}' identifies more with twice the {effort}: {name} "
                f"{getattr(twice, name):.3f} after {getattr(once, name):.3f}"
            )
            flags.append(Flag(name="still_rising", message=message))
    return flags


def _difference(
    one: Tensor | None, other: Tensor | None, stream: Stream
) -> Iterator[tuple[float, float, float]]:
    """Mean and interval of one − other over images where both are defined; nothing without one."""
    if one is None or other is None:
        return
    gap = one.double() - other.double()
    defined = gap[gap.isfinite()]
    if len(defined) < 2:
        return
    interval: Interval | None = mean_intervals(
        defined.view(-1, 1).numpy(), stream.stream(use="consistency")
    )[0]
    if interval is not None:
        yield float(defined.mean()), *interval

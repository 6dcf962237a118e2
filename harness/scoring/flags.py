"""Flags: what a reader of a record must know before trusting its numbers. All are decided here.

Of what was asked (`cell_flags`), of one judgement (`judgement_flags`), of what an attack foretold
of itself (`missed_forecast`), of what is too good to be true (`accuracy_flags`, `beyond_noise`),
across attacks on one release (`check_consistency`), of twice the effort (`still_rising`,
`sharper`), and of what failed beside the rest (`failure_flags`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api.errors import NotApplicable
from harness.api.knowledge import Channel, ReleaseKind, ThreatModel
from harness.api.plugins import Config
from harness.api.randomness import Stream
from harness.scoring.findings import Finding
from harness.scoring.identification import Identification
from harness.scoring.summary import mean_intervals
from harness.scoring.verdict import MAIN_METRIC, telling_metric

if TYPE_CHECKING:
    from torch import Tensor

    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.scoring.judgement import Judgement
    from harness.scoring.summary import MetricScore
    from harness.scoring.utility import Utility

SAME_GREY = 0.5 / 255
"""Images that differ by less than half a grey level look the same."""
CERTAIN = 0.99
"""Top-1 from which an identification is as good as complete."""
LEAST_DB = 0.1
"""A difference that is worth a flag."""
LEAST_ERROR = 1e-6
"""Squared error a value, of values of variance one, below which nobody sees a difference."""
FORETOLD, HAD = "predicted_error", "squared_error"
"""The diagnostic by which an attack foretells its squared error a value, pooled over what it shows,
and the finding that says what it was."""
MISSED_DB = 1.0
"""A forecast that is farther off is wrong about the release."""
TOO_GOOD = 0.05
"""An accuracy above that of unprotected images by more is not due to mixing: beyond intervals,
which do not hold how far two trainings differ."""
OUTDONE = 0.1
"""An inference that is right so much more often than every plain one may know the answers."""
TOO_EXACT_DB = 20.0
"""What knowing how images look may gain over what noise leaves, or over the best guess."""
SOME, MOST = 0.1, 0.5
"""Shares of the targets. A few images have a twin among the public ones."""
DISBELIEVED = frozenset({"beyond_unprotected", "inference_outdoes", "beyond_noise"})
"""Flags of results that are too good to be true: they count once somebody has looked into them."""


class Flag(BaseModel):
    """A short name to filter by and a sentence to read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    message: str


def cell_flags(cell: Cell) -> tuple[Flag, ...]:
    """Flags that follow from what was asked."""
    flags = [*uncounted(cell.request.preset, cell.threat_model, cell.attack)]
    bare = cell.main is not None and cell.kind is ReleaseKind.FEATURES
    for defense in cell.defenses:
        if bare and defense.spec.trains_alone:
            weights = f"'{defense.name}' speaks for the trained weights"
            message = f"{weights}, not for features h(x) that leave"
            flags.append(Flag(name="beyond_the_guarantee", message=message))
    if cell.public and cell.public.name != cell.dataset.name:
        message = (
            f"public images come from '{cell.public.name}'; where its classes are others, their "
            "labels were drawn at random and class means tell nothing"
        )
        flags.append(Flag(name="foreign_public", message=message))
    return tuple(flags)


def uncounted(
    preset: str, threat_model: ThreatModel, attack: Resolved | None = None
) -> tuple[Flag, ...]:
    """Why a result does not count, whatever it says: a quick look, or an attacker who is told."""
    reasons = []
    if preset == "quick":
        reasons.append(
            "the quick preset is for a first look; a board takes only standard or paper runs"
        )
    if not threat_model.ranked:
        reasons.append(f"the threat model '{threat_model.name}' hands the attack the truth")
    if attack and isinstance(attack.config, Config):
        reasons.append(attack.config.unranked())
    return tuple(Flag(name="unranked", message=reason) for reason in reasons if reason)


def accuracy_flags(utility: Utility | None) -> list[Flag]:
    """An accuracy that no release can have, and one that rests on who asks."""
    return [] if utility is None else [*_beyond_unprotected(utility), *_inference_outdoes(utility)]


def _beyond_unprotected(utility: Utility) -> Iterator[Flag]:
    """More is learned than from unprotected images, where anything is learned from these."""
    bare, own = utility.reference_interval, utility.interval
    if bare is None or own is None or bare[0] <= utility.chance:
        return
    ends = [each.interval[1] for each in utility.reference_accuracies.values() if each.interval]
    if own[0] > max(ends, default=bare[1]) + TOO_GOOD:
        yield Flag(
            name="beyond_unprotected",
            message=f"accuracy {utility.accuracy:.3f} is surely above what is learned from "
            f"unprotected images, {utility.reference_accuracy:.3f}: whoever answers may know the "
            "test labels",
        )


def _inference_outdoes(utility: Utility) -> Iterator[Flag]:
    """The defense's own inference is right far more often than whoever asks plainly."""
    asked = utility.by_own_inference
    plain = [e.interval[1] for n, e in utility.accuracies.items() if n not in asked and e.interval]
    for name, own in asked.items():
        if plain and own.interval and own.interval[0] > max(plain) + OUTDONE:
            yield Flag(
                name="inference_outdoes",
                message=f"'{name}', the defense's own inference, has accuracy {own.mean:.3f}, and "
                f"nobody who asks plainly surely has more than {max(plain):.3f}: it may know the "
                "test labels",
            )


def beyond_noise(attack: str, scores: Tensor, guesses: Tensor, left: Tensor) -> list[Flag]:
    """An attack answers more exactly than the stated noise allows.

    Of each target [n], in decibels: what the attack scores, what the best guess does, and what
    noise leaves to whoever is told weights and partners.
    """
    if not far_above(scores, guesses.maximum(left)):
        return []
    share = float((scores - guesses.maximum(left) > TOO_EXACT_DB).double().mean())
    message = (
        f"'{attack}' is more than {TOO_EXACT_DB:.0f} dB above both what the stated noise leaves "
        f"and the best guess on {share:.0%} of the images: it may hold the images themselves"
    )
    return [Flag(name="beyond_noise", message=message)]


def far_above(scores: Tensor, others: Tensor) -> bool:
    """Whether more than a few of these decibels [n] lie more than `TOO_EXACT_DB` above others."""
    return float((scores - others > TOO_EXACT_DB).double().mean()) > SOME


def public_images(judgement: Judgement, public: Tensor) -> list[Flag]:
    """Most answers are public images [n, c, h, w] in [0,1] as they are, to the grey level."""
    known = set(_greys(public))
    answers = _greys(judgement.images[judgement.found].cpu())
    same = sum(answer in known for answer in answers)
    if not same or same < MOST * len(answers):
        return []
    message = f"{same} of {len(answers)} reconstructions are public images as they are"
    return [Flag(name="public_images", message=message)]


def _greys(images: Tensor) -> list[bytes]:
    """Images in [0,1] as bytes, each by itself."""
    import torch

    return [each.tobytes() for each in (images * 255).round().to(torch.uint8).numpy()]


def judgement_flags(judgement: Judgement) -> list[Flag]:
    """All flags that one judgement raises."""
    flags = below_null(judgement.privacy)
    images = judgement.images[judgement.found]
    if len(images) > 1 and (images - images[0]).abs().max().item() <= SAME_GREY:
        message = f"all {len(images)} reconstructions are the same image: the release was not used"
        flags.append(Flag(name="constant_output", message=message))
    flags += undefined_targets(judgement.privacy)
    if notes := [note for note in judgement.notes if "falls back" in note]:
        flags.append(Flag(name="null_fallback", message="; ".join(notes)))
    return flags


def below_null(privacy: Mapping[str, MetricScore]) -> list[Flag]:
    """The attack does worse than guessing, and no better where signs do not count."""
    score = privacy.get(MAIN_METRIC)
    if score is None or score.gain_ci is None or telling_metric(privacy) != MAIN_METRIC:
        return []
    low, high = score.gain_ci
    if high >= 0:
        return []
    message = (
        f"the attack's {MAIN_METRIC} lies {-high:.2f} to {-low:.2f} {score.unit} below the null "
        f"'{score.null_name}', which uses no release: its failure says nothing about the defense"
    )
    return [Flag(name="below_null", message=message)]


def undefined_targets(privacy: Mapping[str, MetricScore]) -> list[Flag]:
    """Some targets have no value under a metric and are left out of its means."""
    counts = {name: score.undefined for name, score in privacy.items() if score.undefined}
    if not counts:
        return []
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    message = f"targets without a defined value, counted and not averaged: {listed}"
    return [Flag(name="undefined_targets", message=message)]


def missed_forecast(foretold: Mapping[str, float], findings: Mapping[str, Finding]) -> list[Flag]:
    """The attack's pooled error is another than it foretold, by more than chance and `MISSED_DB`.

    An attack that foretells assumes a law of noise and of images; where it errs, that law is not
    the release's, and its score is not the best that its kind can have.
    """
    if FORETOLD not in foretold or HAD not in findings:
        return []
    own, had = foretold[FORETOLD], findings[HAD]
    low, high = had.ci or (had.value, had.value)
    by = 10 * math.log10(max(had.value, LEAST_ERROR) / max(own, LEAST_ERROR))
    if abs(by) <= MISSED_DB or low <= own <= high:
        return []
    message = (
        f"the attack foretold a squared error of {own:.3g} a value and had {had.value:.3g}, "
        f"{abs(by):.1f} dB {'more' if by > 0 else 'less'}: the law that it takes for the "
        "release's does not fit, and another attack of its kind may do better"
    )
    return [Flag(name="missed_forecast", message=message)]


def failure_flags(
    kind: Literal["companion", "learner", "member", "twice"], failed: Mapping[str, Exception]
) -> list[Flag]:
    """By name, what did not come to an end beside the rest; what could not be is no failure."""
    return [
        Flag(name=f"{kind}_failed", message=f"{name}: {first_line(error)}")
        for name, error in failed.items()
        if kind != "member" or not isinstance(error, NotApplicable)
    ]


def first_line(error: Exception) -> str:
    """An error's message without its log."""
    return str(error).partition("\n")[0]


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
        compared = [
            (*_difference(winner.scores, loser.scores, stream), winner)
            for winner in answers
            if winner.channels < loser.channels
        ]
        if better := [found for found in compared if found[1] > least]:
            mean, low, winner = max(better, key=lambda found: found[0])
            extra = ", ".join(sorted(loser.channels - winner.channels))
            yield Flag(
                name="knows_less_does_better",
                message=f"'{winner.attack}' beats '{loser.attack}', which also holds {extra}, by "
                f"{mean:.2f} {unit} (at least {low:.2f}): '{loser.attack}' makes poor use of it",
            )


def _beats_optimum(answers: Sequence[Answer], stream: Stream) -> Iterator[Flag]:
    """A linear attack has less pooled squared error than the best one for the stated noise."""
    for optimum, other in product(answers, answers):
        if (optimum.linear, other.linear) != ("optimal", "yes"):
            continue
        mean, low = _difference(optimum.errors, other.errors, stream)
        if low > LEAST_ERROR:
            yield Flag(
                name="linear_beats_optimum",
                message=f"'{other.attack}' is linear and its squared error is {mean:.3g} "
                f"(at least {low:.3g}) a value below that of '{optimum.attack}', the "
                "best for the prior and the noise that it states: one of them does not fit",
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
    mean, low = _difference(twice, once, stream)
    if low <= 0 or mean < (LEAST_DB if unit == "dB" else 0.0):
        return []
    message = (
        f"'{attack}' gains {mean:.2f} {unit} (at least {low:.2f}) from twice the {effort}: it was "
        "stopped too early to say what leaks"
    )
    return [Flag(name="still_rising", message=message)]


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


def _difference(one: Tensor | None, other: Tensor | None, stream: Stream) -> tuple[float, float]:
    """Mean of one − other over images where both are defined, and its interval's lower end.

    Without an interval nothing is shown: the end is −∞.
    """
    if one is None or other is None:
        return 0.0, -math.inf
    gap = one.double() - other.double()
    defined = gap[gap.isfinite()]
    column = defined.view(-1, 1).numpy()
    (interval,) = mean_intervals(column, stream.stream(use="consistency"))
    return (float(defined.mean()), interval[0]) if interval else (0.0, -math.inf)

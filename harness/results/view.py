"""What a board says, ready to be drawn: the one shape behind its table, its page and its advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.scoring.summary import Interval
from harness.scoring.verdict import ABSOLUTE, MAIN_METRIC
from harness.store.bounds import Budget

CellStatus = Literal["ok", "failed", "timeout", "not_applicable", "missing"]
Standing = Literal["passed", "failed", "not run"]
"""What became of an attack's positive controls, as it is and was configured."""


ONLY_WEAK = "only_weak_attacks"
"""The flag of a row of which every attack does worse than guessing."""
WEAK = "no rank: every attack that ran does worse than guessing"
"""Why such a row has no place, in one phrase."""


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Number(_Seen):
    """A value with its 95% interval; None where a single value has none."""

    value: float
    ci: Interval | None = None

    @property
    def low(self) -> float:
        """The lower end of its interval; without one, the value itself."""
        return self.ci[0] if self.ci else self.value

    @property
    def high(self) -> float:
        """The upper end of its interval; without one, the value itself."""
        return self.ci[1] if self.ci else self.value


class Leak(_Seen):
    """How much leaked by one metric, over `seeds`.

    `gain` over the null is signed so that positive leaks more, whichever way the metric points.
    `strongest` is the attack that came nearest to most images; `worst` the value of the image that
    leaks most.
    """

    metric: str
    unit: str = ""
    leaks_more: Literal["higher", "lower"]
    mean: Number
    null: float
    gain: Number
    worst: float | None = None
    strongest: str = ""
    seeds: tuple[int, ...] = ()


class _Leaking(_Seen):
    """What has `leaks` by metric; where a defense hides signs, also by `<metric>_abs`."""

    leaks: dict[str, Leak] = {}

    def leak(self, metric: str) -> Leak | None:
        """By a metric as it is, or on absolute values where those leak more."""
        found = [self.leaks[name] for name in (metric, metric + ABSOLUTE) if name in self.leaks]
        return max(found, key=lambda leak: leak.gain.value, default=None)


class Notice(_Seen):
    """A flag of a record."""

    name: str
    message: str


class CellView(_Leaking):
    """One defense against one attack, over its seeds.

    `findings` are sentences on what it found out besides images. `verified` is whether the
    attack's positive control passed and no flag speaks against the cell. `gallery` is a path
    relative to the board's folder. `commands` evaluate it anew, one for each seed. `origin` is the
    submission it comes from, if from one; `homes` says by id of those records that came with a
    submission which one that is.
    """

    attack: str
    threat_model: str
    release_kind: str
    status: CellStatus
    reason: str = ""
    seeds: tuple[int, ...] = ()
    records: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    flags: tuple[Notice, ...] = ()
    verified: bool = True
    gallery: str | None = None
    commands: tuple[str, ...] = ()
    seconds: float | None = None
    commit: str = ""
    origin: str = ""
    homes: dict[str, str] = {}


def nothing_found(accuracy: Number | None, chance: float | None) -> bool:
    """Whether an accuracy is not surely above chance: the strongest learner found nothing."""
    return accuracy is not None and chance is not None and accuracy.low <= chance


class LearnerView(_Seen):
    """One learner, or one way to ask a victim: its accuracy on the images that are reported.

    `validation` is what it was chosen by; None for a victim. One that was left out has a `reason`
    in place of an accuracy. `control` is what became of its positive controls, None for a victim.
    """

    name: str
    accuracy: Number | None = None
    validation: float | None = None
    chosen: bool = False
    reason: str = ""
    control: Standing | None = None


def chosen_of(learners: Iterable[LearnerView]) -> str:
    """The names of those that were chosen; none where there was nothing to choose from."""
    return ", ".join(e.name for e in learners if e.chosen and e.validation is not None)


class Learned(_Seen):
    """What was learned from so many private images, released in so many rounds, over `seeds`.

    `accuracy` is that of the chosen of its `learners`, `reference` that of the best one on
    unprotected images. Without an accuracy there may be a `reason`. `records` are those that are
    of accuracy alone; those of attacks tell it too.
    """

    private_size: int
    rounds: int = 1
    accuracy: Number | None = None
    reference: Number | None = None
    chance: float | None = None
    learners: tuple[LearnerView, ...] = ()
    seeds: tuple[int, ...] = ()
    reason: str = ""
    records: tuple[str, ...] = ()

    @property
    def learner(self) -> str:
        """The chosen one; where seeds chose others, all of them."""
        return chosen_of(self.learners)

    @property
    def at_chance(self) -> bool:
        """Whether the strongest learner found nothing."""
        return nothing_found(self.accuracy, self.chance)


class Identified(_Seen):
    """How well the best of the attacks that identify tells true images among candidates.

    Of `n` questions about images or encodings, `top1` is the share in which a true image comes
    first of `candidates`, `auc` how often a true one stands before a false one. `fewer_rounds`: it
    was found in a release of so many rounds, which the row's own contains; None for the row's own.
    """

    attack: str
    threat_model: str
    top1: Number
    top1_chance: float
    auc: Number
    auc_chance: float
    candidates: int
    n: int
    asked: Literal["images", "encodings"]
    seeds: tuple[int, ...] = ()
    fewer_rounds: int | None = None

    @property
    def sure(self) -> bool:
        """Whether images are named: surely more often than by chance."""
        return self.top1.low > self.top1_chance or self.auc.low > self.auc_chance


class Bracket(_Seen):
    """Pooled SNR in dB: the attack that comes nearest to its ceiling, and that ceiling.

    `labels`: it reads labels, and the ceiling is that of whoever does. A `vacuous` one holds and
    says nothing. `blind` is what somebody has who looks at no release, and `identification` the
    most that anybody names among as many candidates; None where the ceiling does not say.
    """

    attack: str
    reached: Number
    ceiling: Number
    labels: bool
    vacuous: bool
    blind: Number | None = None
    identification: Number | None = None
    seeds: tuple[int, ...] = ()

    @property
    def over_blind(self) -> tuple[float, float] | None:
        """What was reached and what is the most, in dB over a blind guess.

        None where that is not known, or the ceiling says nothing.
        """
        if self.blind is None or self.vacuous:
            return None
        return self.reached.value - self.blind.value, self.ceiling.value - self.blind.value


class RowView(_Leaking):
    """One defense in one track: what is learned, and what the strongest attack gets of each image.

    `rank` by metric, as `ranks.RULE` says; a row without a number has none, nor one of which cells
    are `missing`, nor one that only weak attacks met, nor one that is not `protected`: that is the
    reference. `retained` is accuracy
    over that of the same victim without protection, `chance` that of always naming the same class;
    `seeds` are those that the accuracies are of. `flags` say why the row is not `verified`.
    `learners` are all that were tried, `curve` what is learned from other numbers of images, the
    row's own number among them. `identified` is how well images are told among candidates, where
    an attack asked. `bracket` is what was reached beside its ceiling, where there is one, and
    `unbounded` why there is none, where that was asked. `budget` is what is proven of the release,
    by the defense itself or by a ceiling. `older` names plugins whose source,
    versions or options are others by now; of these, `again` counts the cells of other versions or
    options, which are to run again.
    """

    track: str
    defense: str
    accuracy: Number | None = None
    reference: Number | None = None
    retained: Number | None = None
    chance: float | None = None
    seeds: tuple[int, ...] = ()
    rank: dict[str, int] = {}
    cells: tuple[CellView, ...] = ()
    flags: tuple[Notice, ...] = ()
    verified: bool = True
    protected: bool = True
    missing: int = 0
    again: int = 0
    origin: str = ""
    learners: tuple[LearnerView, ...] = ()
    curve: tuple[Learned, ...] = ()
    identified: Identified | None = None
    bracket: Bracket | None = None
    unbounded: str = ""
    budget: Budget | None = None
    older: tuple[str, ...] = ()

    @property
    def at_chance(self) -> bool:
        """Whether the strongest learner found nothing."""
        return nothing_found(self.accuracy, self.chance)

    @property
    def learner(self) -> str:
        """The learner that its accuracy is of; where seeds chose others, all of them."""
        return chosen_of(self.learners)

    @property
    def names_images(self) -> bool:
        """Whether some attack surely tells its images among candidates."""
        return self.identified is not None and self.identified.sure

    @property
    def only_weak(self) -> bool:
        """Whether every attack does worse than guessing: nothing is known of the defense."""
        return any(flag.name == ONLY_WEAK for flag in self.flags)

    @property
    def lines(self) -> dict[int, list[Learned]]:
        """The points of its curve that have an accuracy, by rounds."""
        found: dict[int, list[Learned]] = {}
        for each in self.curve:
            if each.accuracy:
                found.setdefault(each.rounds, []).append(each)
        return found


class AttackView(_Seen):
    """One attack in one track: its mean gain over nulls across the defenses it met, by metric.

    `rank` in layers: an attack is behind those that surely gain more on the defenses that both met;
    one that surely gains against none has no rank. The reference is no defense here. `control` says
    whether it breaks what it must. Of `strongest_of` images it came nearest of all attacks,
    by the board's first metric.
    """

    attack: str
    threat_model: str
    gain: dict[str, Number] = {}
    rank: dict[str, int] = {}
    cells: int = 0
    strongest_of: int = 0
    control: Standing = "not run"


class ClaimView(_Seen):
    """A paper's number beside ours; `measured` is None where we have no such cell.

    An accuracy has no attack; where it is of other numbers than the row's, these are given.
    """

    defense: str
    attack: str = ""
    metric: str
    claimed: float
    measured: Number | None = None
    private_size: int | None = None
    rounds: int | None = None
    source: str
    note: str = ""


class TrackView(_Seen):
    """Rows that can be compared."""

    name: str
    title: str
    about: str = ""
    rows: tuple[RowView, ...] = ()
    attacks: tuple[AttackView, ...] = ()
    protocol: dict[str, str] = {}


class BoardView(_Seen):
    """All of a board. `metrics` are those that rows are ranked by, the first one first.

    Where a defense hides signs, a row is ranked by what leaks more, as it is or of absolute values.
    `main_metric` is what the board would rank by first, though nothing were scored by it.
    """

    name: str
    title: str
    about: str = ""
    status: Literal["measured", "defined"] = "measured"
    stage: Literal["open", "frozen"] = "frozen"
    dataset: str
    metrics: tuple[str, ...]
    main_metric: str = MAIN_METRIC
    tracks: tuple[TrackView, ...]
    claims: tuple[ClaimView, ...] = ()
    frozen: dict[str, str] = {}
    records: int = 0
    missing: int = 0
    """Cells of the protocol without a record."""
    again: int = 0
    """Cells with one of which versions or options have moved on."""
    signer: str = ""
    """The fingerprint of who signed it."""

    @property
    def rows(self) -> list[RowView]:
        """Those of all tracks."""
        return [row for track in self.tracks for row in track.rows]

    @property
    def units(self) -> dict[str, str]:
        """The unit of each metric that anything was scored by."""
        leaking = [each for row in self.rows for each in (row, *row.cells)]
        return {name: leak.unit for each in leaking for name, leak in each.leaks.items()}

"""What a board says, ready to be drawn: the one shape behind its table, its page and its advice."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.scoring.summary import Interval
from harness.scoring.verdict import ABSOLUTE, MAIN_METRIC

CellStatus = Literal["ok", "failed", "timeout", "not_applicable", "missing"]
Standing = Literal["passed", "failed", "not run"]
"""What became of an attack's positive controls, as it is and was configured."""


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


class RowView(_Leaking):
    """One defense in one track: what is learned, and what the strongest attack gets of each image.

    `rank` by metric, as `ranks.RULE` says; a row without a number has none, nor one of which cells
    are `missing`, nor one that is not `protected`: that is the reference. `retained` is accuracy
    over that of the same victim without protection, `chance` that of always naming the same class;
    `seeds` are those that the accuracies are of. `flags` say why the row is not `verified`.
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
    origin: str = ""

    @property
    def at_chance(self) -> bool:
        """Whether the accuracy is not surely above chance: nothing is shown to be learned."""
        if self.accuracy is None or self.chance is None:
            return False
        return self.accuracy.low <= self.chance


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
    """A paper's number beside ours; `measured` is None where we have no such cell."""

    defense: str
    attack: str
    metric: str
    claimed: float
    measured: Number | None = None
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
    dataset: str
    metrics: tuple[str, ...]
    main_metric: str = MAIN_METRIC
    tracks: tuple[TrackView, ...]
    claims: tuple[ClaimView, ...] = ()
    frozen: dict[str, str] = {}
    records: int = 0
    missing: int = 0
    """Cells of the protocol without a record."""

    @property
    def rows(self) -> list[RowView]:
        """Those of all tracks."""
        return [row for track in self.tracks for row in track.rows]

    @property
    def units(self) -> dict[str, str]:
        """The unit of each metric that anything was scored by."""
        leaking = [each for row in self.rows for each in (row, *row.cells)]
        return {name: leak.unit for each in leaking for name, leak in each.leaks.items()}

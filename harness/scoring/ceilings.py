"""What a ceiling says, as a record holds it, and whether anything that was reached is above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.api.ceilings import Bound
from harness.api.randomness import Stream
from harness.scoring.flags import Flag
from harness.scoring.summary import CONFIDENCE, RESAMPLES, Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

POOLED = "pooled_snr_db"
"""The quantity that what was reached is held against."""
LABELS = "_labels"
"""Ends its name where it holds against whoever reads labels."""
MOST_DB = 120.0


class Proven(BaseModel):
    """A number that nothing exceeds, with its 95% interval where it is estimated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    interval: Interval | None = None
    detail: str = ""


class Reached(BaseModel):
    """The pooled SNR of one attack's images, and the quantity that bounds it; "" where none does.

    `over` is the mean squared error of the images less that of the bound, as a share of the
    latter: below zero where more was reached than the ceiling allows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    interval: Interval | None = None
    bound: str = ""
    over: float | None = None


class ShownTable(BaseModel):
    """A small table for people."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class Proof(BaseModel):
    """What one ceiling says of a release; `reason` says why it says nothing, where it does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = ""
    quantities: dict[str, Proven] = {}
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vacuous: tuple[str, ...] = ()
    tables: tuple[ShownTable, ...] = ()
    reached: dict[str, Reached] = {}
    """By attack; of those that name their targets."""

    @classmethod
    def of(cls, found: Bound | str) -> Proof:
        """From what a ceiling gives back."""
        if isinstance(found, str):
            return cls(reason=found)
        return cls(
            quantities={
                name: Proven(value=q.value, interval=q.interval, detail=q.detail)
                for name, q in found.quantities.items()
            },
            assumptions=found.assumptions,
            notes=found.notes,
            vacuous=found.vacuous,
            tables=tuple(
                ShownTable(title=t.title, columns=t.columns, rows=t.rows) for t in found.tables
            ),
        )


@dataclass(frozen=True)
class Shown:
    """What one attack showed of targets that it named: squared errors [targets].

    `bounded_by` is the quantity that holds against it; "" where it is told more than a prior.
    """

    attack: str
    errors: Tensor
    bounded_by: str


def compared(
    shown: Sequence[Shown], bounds: Mapping[str, Tensor], energies: Tensor, stream: Stream
) -> tuple[dict[str, Reached], list[Flag]]:
    """What each attack reached beside what bounds it, and a flag for each that is surely above.

    `bounds` are a ceiling's squared errors [targets] by quantity, `energies` [targets] |x|². An
    attack is surely above where the paired bootstrap interval of its mean squared error less the
    bound's lies below zero, one-sided at 5 % over the number of attacks: with many attacks one is
    lucky.
    """
    reached: dict[str, Reached] = {}
    flags: list[Flag] = []
    for each in shown:
        name = each.bounded_by
        bound = bounds.get(name)
        over = _Over.of(each.errors, bound, energies, stream)
        if (limit := over.limit(len(shown))) < 0:
            flags.append(_above(each.attack, name, -over.share, -limit))
        reached[each.attack] = Reached(
            value=over.value,
            interval=over.interval,
            bound="" if bound is None else name,
            over=None if bound is None else over.share,
        )
    return reached, flags


def _above(attack: str, name: str, by: float, least: float) -> Flag:
    message = (
        f"'{attack}' has a squared error {by:.1%} below what {name} allows any attack (at least "
        f"{least:.1%}): the ceiling's assumptions do not hold here, or the attack is told more "
        "than they say"
    )
    return Flag(name="above_ceiling", message=message)


@dataclass(frozen=True)
class _Over:
    """One attack over resampled targets: decibels, and the gap to its bound as a share of that.

    `gaps` [resamples] are empty where nothing bounds it. A bound that leaves no error counts as
    one of the most decibels that are told.
    """

    value: float
    interval: Interval
    share: float
    gaps: NDArray[np.float64]

    @classmethod
    def of(cls, errors: Tensor, bound: Tensor | None, energies: Tensor, stream: Stream) -> _Over:
        """Of the targets that the bound is of."""
        import numpy as np

        kept = np.ones(len(errors), bool) if bound is None else bound.isfinite().numpy()
        had, power = errors.double().numpy()[kept], energies.double().numpy()[kept]
        rng = np.random.default_rng(stream.stream(use="ceiling").seed())
        drawn = [rng.integers(len(had), size=len(had)) for _ in range(RESAMPLES)]

        def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([values[rows].sum() for rows in drawn])

        decibels = _decibels(sums(power), sums(had))
        tail = (1 - CONFIDENCE) / 2
        ends = _quantile(decibels, tail), _quantile(decibels, 1 - tail)
        value = float(_decibels(power.sum(keepdims=True), had.sum(keepdims=True))[0])
        if bound is None:
            return cls(value, ends, 0.0, np.empty(0))
        gap = had - bound.double().numpy()[kept]
        least = max(float(power.sum()), float(had.sum())) * 10 ** (-MOST_DB / 10)
        total = max(float((had - gap).sum()), least) or 1.0
        return cls(value, ends, float(gap.sum()) / total, sums(gap) / total)

    def limit(self, attacks: int) -> float:
        """The upper end of the gap's one-sided interval, where so many are compared; 0 if none."""
        if not len(self.gaps):
            return 0.0
        return _quantile(self.gaps, 1 - (1 - CONFIDENCE) / attacks)


def _decibels(power: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        capped: NDArray[np.float64] = np.clip(10 * np.log10(power / error), -MOST_DB, MOST_DB)
    return capped


def _quantile(drawn: NDArray[np.float64], level: float) -> float:
    import numpy as np

    return float(np.quantile(drawn, level))

"""Claims about candidates: which of a list is the true image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.api import CellFailed, Stream
from harness.scoring.intervals import Interval, mean_intervals, proportion_interval

if TYPE_CHECKING:
    from torch import Tensor

TOP = 5
CHANCE_AUC = 0.5


class Identification(BaseModel):
    """How often the true candidate is ranked first, among the first five, above a false one.

    Proportions in [0,1] with 95% intervals (Wilson; bootstrap over targets for the AUC) and
    what guessing would reach. `n` targets, `candidates` to choose from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    top1: float
    top1_ci: Interval | None
    top1_chance: float
    top5: float
    top5_ci: Interval | None
    top5_chance: float
    auc: float
    auc_ci: Interval | None
    auc_chance: float = CHANCE_AUC
    n: int
    candidates: int


def identification(
    scores: Tensor, true: Tensor, stream: Stream, attack: str = ""
) -> Identification:
    """Judge `candidate_scores` [n, m], higher = more likely, against `true` [n] indices.

    Ties count against the attack in top-1 and top-5, and half in the AUC.
    """
    n, m = _checked(scores, true, f"attack '{attack}'" if attack else "the attack")
    own = scores.gather(1, true.to(scores.device).view(-1, 1))
    above = (scores > own).sum(1)
    level = (scores == own).sum(1) - 1
    top1, top5 = (int((above + level < top).sum()) for top in (1, TOP))
    auc = 1 - (above.double() + level.double() / 2) / (m - 1)
    return Identification(
        top1=top1 / n,
        top1_ci=proportion_interval(top1, n),
        top1_chance=1 / m,
        top5=top5 / n,
        top5_ci=proportion_interval(top5, n),
        top5_chance=min(1, TOP / m),
        auc=auc.mean().item(),
        auc_ci=mean_intervals(auc.cpu().view(-1, 1).numpy(), stream)[0],
        n=n,
        candidates=m,
    )


def _checked(scores: Tensor, true: Tensor, who: str) -> tuple[int, int]:
    """Numbers of targets and of candidates, if the scores can be judged."""
    if scores.ndim != 2 or len(scores) != len(true) or min(scores.shape) < 1 or scores.shape[1] < 2:
        raise CellFailed(
            f"{who} returned candidate scores of shape {tuple(scores.shape)}; wanted "
            f"({len(true)}, m), one row per target and one column per candidate"
        )
    if not scores.isfinite().all():
        raise CellFailed(f"{who} returned NaN or infinite candidate scores")
    return scores.shape[0], scores.shape[1]

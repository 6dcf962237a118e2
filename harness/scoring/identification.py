"""Claims about candidates: which of a list are the true images."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api import CellFailed, Stream
from harness.scoring.summary import Interval, mean_intervals, proportion_interval

if TYPE_CHECKING:
    from torch import Tensor

TOP = 5
CHANCE_AUC = 0.5
BLOCK = 512


class Identification(BaseModel):
    """How often a true candidate is ranked first, among the first five, above a false one.

    Each of `n` questions has `true` right answers among `candidates`: `asked` of an image, it is
    the one; asked of an encoding, the private images that are mixed in it. `top1`: the first is
    a true one; `top5`: one of the first five is; `recall`: the share of the true ones that are
    among as many first ones. Proportions
    in [0,1] with 95% intervals (Wilson; bootstrap for AUC and recall, and for all where several
    encodings are of one image, over the images) and what guessing would reach.
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
    recall: float | None = None
    recall_ci: Interval | None = None
    recall_chance: float | None = None
    n: int
    candidates: int
    true: int = 1
    asked: Literal["images", "encodings"] = "images"


def identification(
    scores: Tensor,
    true: Tensor,
    stream: Stream,
    attack: str = "",
    of: Tensor | None = None,
) -> Identification:
    """Judge `candidate_scores` [n, m], higher = more likely, against `true` [n] or [n, k] indices.

    Ties count against the attack in top-1, top-5 and recall, and half in the AUC. Of encodings,
    `of` [n] says which image each is of.
    """
    true = true.view(len(true), -1)
    _check(scores, true, f"attack '{attack}'" if attack else "the attack")
    (n, m), k = scores.shape, true.shape[1]
    columns = _columns(scores, true.to(scores.device), m)
    intervals = _intervals(columns, of, stream)
    chances = {"top1": k / m, "top5": _one_of(m, k), "recall": k / m}
    return Identification.model_validate(
        {name: float(column.mean()) for name, column in columns.items()}
        | {f"{name}_ci": interval for name, interval in intervals.items()}
        | {f"{name}_chance": chance for name, chance in chances.items()}
        | {"n": n, "candidates": m, "true": k, "asked": "images" if of is None else "encodings"}
    )


def _columns(scores: Tensor, true: Tensor, m: int) -> dict[str, Tensor]:
    """[n] float64 of each measure, question by question."""
    import torch

    k = true.shape[1]
    above, level = _ranks(scores, true)
    worst = above + level  # candidates that are no worse, the true ones left out
    before = torch.arange(k, device=worst.device)  # true ones that stand before each, once sorted
    return {
        "top1": (worst.min(1).values < 1).double().cpu(),
        "top5": (worst.min(1).values < TOP).double().cpu(),
        "recall": (worst.sort(1).values + before < k).double().mean(1).cpu(),
        "auc": (1 - (above.double() + level.double() / 2) / max(1, m - k)).mean(1).cpu(),
    }


def _intervals(
    columns: dict[str, Tensor], of: Tensor | None, stream: Stream
) -> dict[str, Interval | None]:
    """95% intervals; encodings of one image are no independent questions, their mean is one."""
    together = of is not None and int(of.bincount().max()) > 1
    if of is not None and together:
        columns = {name: _by_image(column, of) for name, column in columns.items()}
    found = {  # all of them are drawn: each draw moves the stream for those after it
        name: mean_intervals(column.view(-1, 1).numpy(), stream)[0]
        for name, column in columns.items()
    }
    if not together:
        for name in ("top1", "top5"):
            found[name] = proportion_interval(int(columns[name].sum()), len(columns[name]))
    return found


def _by_image(column: Tensor, of: Tensor) -> Tensor:
    """The mean over the questions of each image."""
    counts = of.bincount()
    sums = column.new_zeros(len(counts)).index_add_(0, of, column)
    return sums[counts > 0] / counts[counts > 0]


def _one_of(m: int, k: int) -> float:
    """The chance that five of m drawn at random hold one of k."""
    drawn = min(TOP, m)
    return 1 - comb(m - k, drawn) / comb(m, drawn)


def _ranks(scores: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    """[n, k] how many false candidates score above each true one, and how many the same."""
    import torch

    above, level = torch.empty_like(true), torch.empty_like(true)
    for start in range(0, len(scores), BLOCK):
        part = slice(start, start + BLOCK)
        few, own = scores[part], scores[part].gather(1, true[part])
        for j in range(true.shape[1]):
            mine = own[:, j : j + 1]
            above[part, j] = (few > mine).sum(1) - (own > mine).sum(1)
            level[part, j] = (few == mine).sum(1) - (own == mine).sum(1)
    return above, level


def _check(scores: Tensor, true: Tensor, who: str) -> None:
    """CellFailed unless the scores can be judged."""
    shaped = scores.ndim == 2 and len(scores) == len(true) and min(scores.shape) >= 1
    if not shaped or scores.shape[1] <= true.shape[1]:
        raise CellFailed(
            f"{who} returned candidate scores of shape {tuple(scores.shape)}; wanted "
            f"({len(true)}, m), one row per target or encoding and one column per candidate"
        )
    if not scores.isfinite().all():
        raise CellFailed(f"{who} returned NaN or infinite candidate scores")

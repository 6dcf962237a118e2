"""What an attack claims besides images, as numbers with intervals and chance beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api import CellFailed, Stream
from harness.scoring.matching import assign_within
from harness.scoring.summary import Interval, mean_intervals, proportion_interval

if TYPE_CHECKING:
    from torch import Tensor

LEVEL = 0.05
"""Tests are held to this level."""
BY_IMAGES = frozenset({"squared_error", "image_sign_accuracy"})
"""Findings that say of images what metrics say too."""
ERRORS = frozenset({"weight_error", "share_error", "squared_error"})
"""Findings of which less leaks more; of all others more does."""


def leaks_more(name: str) -> Literal["higher", "lower"]:
    """In which direction a finding is worse for the owner."""
    return "lower" if name in ERRORS else "higher"


class Finding(BaseModel):
    """One number on what an attack found out.

    `chance` is what a guess reaches that uses no release. `n` things entered the value, a mean
    with its 95% `ci`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    ci: Interval | None = None
    chance: float | None = None
    leaks_more: Literal["higher", "lower"] = "higher"
    unit: str = ""
    n: int = 0

    @property
    def leaks(self) -> bool:
        """Whether the interval lies beyond what a guess reaches."""
        if self.ci is None or self.chance is None:
            return False
        return self.ci[0] > self.chance if self.leaks_more == "higher" else self.ci[1] < self.chance


def mean_finding(
    name: str, values: Tensor, chance: float, stream: Stream, use: str, unit: str = ""
) -> dict[str, Finding]:
    """The mean of `values` [n], by its name; `stream`, for this `use`, draws the interval."""
    column = values.double()
    return {
        name: Finding(
            value=float(column.mean()),
            ci=mean_intervals(column.view(-1, 1).numpy(), stream.stream(use=use))[0],
            chance=chance,
            leaks_more=leaks_more(name),
            unit=unit,
            n=len(values),
        )
    }


@dataclass(frozen=True)
class Facts:
    """What claims are compared with.

    Of all rows of all rounds: `weights` [rows] of the primary image, and `signs(rows)`, ±1
    [len(rows), *shape] of the mixtures under their masks, None where nothing hides them;
    `sources` [rows, k] and `candidates` [n_private], each private image's place in the list.
    `prototypes` [classes, d] and `public_prototypes`: true and public class means, `present`
    [classes] says which classes there are. `guess` [d] is the mean public image; all of them
    standardised.
    """

    weights: Tensor
    sources: Tensor
    candidates: Tensor
    signs: Callable[[Tensor], Tensor] | None
    prototypes: Tensor
    public_prototypes: Tensor
    present: Tensor
    guess: Tensor
    stream: Stream


def findings(claims: Mapping[str, Tensor], rows: Tensor, facts: Facts) -> dict[str, Finding]:
    """Every claim that is known, of the encodings `rows` [m] where it is one of rows.

    CellFailed where a claim is not what its name says.
    """
    judges: dict[str, Callable[[Tensor, Tensor, Facts], dict[str, Finding]]] = {
        "weights": _weights,
        "signs": _signs,
        "class_means": _class_means,
        "p_values": _p_values,
        "pair_scores": _pairs,
    }
    found: dict[str, Finding] = {}
    for name in sorted(judges.keys() & claims.keys()):
        if not bool(claims[name].isfinite().all()):
            raise CellFailed(f"the attack claims {name} that are not all finite")
        found |= judges[name](claims[name].cpu(), rows, facts)
    return found


@dataclass(frozen=True)
class BatchFacts:
    """What claims on batches are compared with.

    `inputs` [batches, b, *shape] of the model, and `labels` [batches, b], the leading ones, of
    so many `classes`. `guess` [*shape] is the mean public image, None where inputs are no images
    of that shape.
    """

    inputs: Tensor
    labels: Tensor
    classes: int
    guess: Tensor | None
    stream: Stream


def batch_findings(claims: Mapping[str, Tensor], facts: BatchFacts) -> dict[str, Finding]:
    """Every claim on released gradients; CellFailed where one is not what its name says.

    Batches that hold a NaN are claimed nothing of, and left out.
    """
    judges = {"batch_labels": _batch_labels, "inputs": _inputs}
    shapes = {
        "batch_labels": (*facts.labels.shape, facts.classes),
        "inputs": tuple(facts.inputs.shape),
    }
    found: dict[str, Finding] = {}
    for name in sorted(judges.keys() & claims.keys()):
        _require(name, claims[name], shapes[name])
        claim = claims[name].cpu()
        there = ~claim.flatten(1).isnan().any(1)
        if bool(there.any()):
            own = replace(facts, inputs=facts.inputs[there], labels=facts.labels[there])
            found |= judges[name](claim[there], own)
    return found


def _batch_labels(claim: Tensor, facts: BatchFacts) -> dict[str, Finding]:
    """Share of each batch's leading labels that were told, however often each comes."""
    from torch.nn.functional import one_hot

    labels = (facts.labels, claim.argmax(2))
    own, told = (one_hot(each, facts.classes).sum(1).double() for each in labels)  # how often each
    size = facts.labels.shape[1]
    shares, chance = own.minimum(told).sum(1) / size, float(_evenly_spread(own, size).mean())
    return mean_finding("label_accuracy", shares, chance, facts.stream, "batch_labels")


def _evenly_spread(own: Tensor, size: int) -> Tensor:
    """[batches] expected share of labels told by spreading the guesses evenly over classes.

    Each class is guessed as often as goes into the batch, those left over on classes drawn.
    """
    classes = own.shape[1]
    each, rest = divmod(size, classes)
    sure = own.clamp(max=each).sum(1)
    lucky = (own > each).sum(1) * rest / classes
    return (sure + lucky) / size


def _inputs(claim: Tensor, facts: BatchFacts) -> dict[str, Finding]:
    """SNR of what the model was given, matched one to one within each batch.

    By chance: that of the mean public image, or of zeros, whichever is better.
    """
    import torch

    if not bool(claim.isfinite().all()):
        raise CellFailed("the attack claims inputs that are infinite")
    batches, size = facts.inputs.shape[:2]
    true, told = (each.float().flatten(2).flatten(0, 1) for each in (facts.inputs, claim))
    groups = torch.arange(batches * size).view(batches, size)
    each = torch.arange(batches).repeat_interleave(size)
    found = _snr(told, true[assign_within(told, true, each, groups)])
    chance = 0.0
    if facts.guess is not None:
        guessed = _snr(facts.guess.float().view(1, -1).expand_as(true), true)
        chance = max(chance, float(guessed.mean()))
    return mean_finding("input_snr_db", found, chance, facts.stream, "inputs", "dB")


def _require(name: str, claim: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(claim.shape) != shape:
        raise CellFailed(f"the attack claims {name} of shape {tuple(claim.shape)}; wanted {shape}")


def _weights(claim: Tensor, rows: Tensor, facts: Facts) -> dict[str, Finding]:
    """Mean absolute error, beside that of the best constant; and correlation."""
    _require("weights", claim, (len(rows),))
    true, claim = facts.weights[rows].double(), claim.double()
    constant = float((true - true.median()).abs().mean())
    error = (claim - true).abs()
    found = mean_finding("weight_error", error, constant, facts.stream, "weights")
    own, other = claim - claim.mean(), true - true.mean()
    spread = float((own.square().sum() * other.square().sum()).sqrt())
    if spread > 0:
        correlation = float((own * other).sum()) / spread
        found["weight_correlation"] = Finding(value=correlation, chance=0.0, n=len(rows))
    return found


def _signs(claim: Tensor, rows: Tensor, facts: Facts) -> dict[str, Finding]:
    """Share of right signs, row by row, beside that of the mean public image's signs."""
    if facts.signs is None:
        return {}
    true = facts.signs(rows)
    _require("signs", claim, tuple(true.shape))
    shares = (claim.sign() == true).flatten(1).float().mean(1)
    guess = facts.guess.sign().view(1, -1)
    alike = guess.shape[1] == true[0].numel()
    chance = float((true.flatten(1) == guess).float().mean()) if alike else 0.5
    return mean_finding("sign_accuracy", shares, chance, facts.stream, "signs")


def _class_means(claim: Tensor, _: Tensor, facts: Facts) -> dict[str, Finding]:
    """SNR of each class's prototype, beside that of public class means."""
    _require("class_means", claim.flatten(1), tuple(facts.prototypes.shape))
    there = facts.present
    true = facts.prototypes[there]
    own, public = (
        _snr(found[there], true) for found in (claim.flatten(1), facts.public_prototypes)
    )
    chance = float(public.mean())
    return mean_finding("class_mean_snr_db", own, chance, facts.stream, "class_means", "dB")


def _snr(found: Tensor, true: Tensor) -> Tensor:
    signal, error = true.square().sum(1), (true - found).square().sum(1)
    decibels: Tensor = 10 * (signal / error.clamp(min=1e-30)).log10()
    return decibels.clamp(-120, 120)


def _p_values(claim: Tensor, _: Tensor, facts: Facts) -> dict[str, Finding]:
    """How often tests of "no difference" reject it; more often than their level is a leak.

    Tests of one pair of images depend on each other: the interval is that of a mean over the last
    axis, of pairs.
    """
    if claim.numel() == 0 or bool(((claim < 0) | (claim > 1)).any()):
        raise CellFailed("the attack claims p_values that are not between 0 and 1")
    pairs = (claim < LEVEL).double().reshape(-1, claim.shape[-1] if claim.ndim else 1).mean(0)
    return mean_finding("rejection_rate", pairs, LEVEL, facts.stream, "p_values")


def _pairs(claim: Tensor, rows: Tensor, facts: Facts) -> dict[str, Finding]:
    """Which pair of candidates a row mixes: both unknown, and the first with its partner known."""
    q, m = len(claim), claim.shape[-1]
    _require("pair_scores", claim, (q, m, m))
    sources = facts.sources[rows[:q]]
    if sources.shape[1] != 2:
        raise CellFailed("the attack claims pairs, and encodings do not mix two images")
    own, partner = facts.candidates[sources].unbind(1)
    return {
        "partner_known_top1": _first(claim[range(q), :, partner], own),
        "pair_top1": _first(claim.flatten(1), own * m + partner),
    }


def _first(scores: Tensor, true: Tensor) -> Finding:
    """How often the true one [q] has a score [q, m] above all others; a tie is none."""
    best = scores.gather(1, true.view(-1, 1))
    hits, (n, m) = int(((scores >= best).sum(1) == 1).sum()), scores.shape
    return Finding(value=hits / n, ci=proportion_interval(hits, n), chance=1 / m, n=n)

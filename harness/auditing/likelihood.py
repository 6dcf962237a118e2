"""How likely a release is where each coin fell one way or the other. Float64 throughout.

A row is told with its weights and with whose images are in it, as in the threat model `informed`;
which of two images that is, each coin hides. Two coins in one row depend on each other, so what is
known of one is passed on to the other, along all rows (belief propagation). That is exact where
rows form no circle, and any guesser is as valid as another: a worse one finds a smaller bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.api import UsageError
from harness.api.law import Law

OTHERS = (
    "ask for --guesser loss or lira, or for an attack that ranks candidates, such as "
    "matchedfilter, innerproduct or sphere"
)
"""What else there is to ask for where no likelihood guesses."""
_BLOCK = 1 << 22
"""Numbers of residuals that are worked on at a time: 32 MB."""
_ROUNDING = 3e-7
"""Of the norm of a row's noise: what rounding its values to float32 leaves uncertain of it."""
_EXACT = 1e-6
"""Deviation that rounding leaves to a value of a row without noise."""
_TURNS, _KEPT = 60, 0.3
"""Rounds of passing on, and how much of the last message stays, so that circles settle."""
_MOST = 1e6
"""Log-odds beyond this are certain; their sums stay finite."""


@dataclass(frozen=True)
class Seen:
    """A release: `rows` [n, d], their `weights` [n, k], and whose coins are in them, `sources`.

    `pairs` [coins, 2, d] are the two images of each coin.
    """

    rows: Tensor
    weights: Tensor
    sources: Tensor
    pairs: Tensor


def check(law: Law | None, name: str, columns: int = 1) -> Law:
    """The law, if a likelihood can be made of it; UsageError says why not."""
    if law is None:
        raise UsageError(f"'{name}' states no law, so no likelihood guesses its coins; {OTHERS}.")
    reasons = {
        "its signs are random": law.signs,
        f"it mixes {law.altered}": bool(law.altered),
        f"{columns} images are in a row": columns > 2,
    }
    for reason, true in reasons.items():
        if true:
            raise UsageError(
                f"The coins of '{name}' cannot be guessed by likelihood: {reason}; {OTHERS}."
            )
    return law


def log_odds(seen: Seen, law: Law) -> Tensor:
    """[coins] log-odds that each coin fell on its second image, given all rows."""
    table = _tables(seen, law)
    coins = len(seen.pairs)
    first = seen.sources[:, 0]
    if seen.sources.shape[1] == 1:
        alone = table[:, 1, 0] - table[:, 0, 0]
        return alone.new_zeros(coins).index_add_(0, first, alone)
    second = seen.sources[:, 1]
    own = first == second
    alone = table[own, 1, 1] - table[own, 0, 0]
    prior = alone.new_zeros(coins).index_add_(0, first[own], alone)
    return _passed(prior, table[~own], first[~own], second[~own])


def _tables(seen: Seen, law: Law) -> Tensor:
    """[n, 2, 2 or 1] log-likelihood of each row by the side of its first and second coin."""
    n, d = seen.rows.shape
    weights = seen.weights.double()
    deviations = law.deviations(seen.weights).double()
    sides = 2 if weights.shape[1] == 2 else 1
    found = torch.empty(n, 2, sides, dtype=torch.float64)
    for at in torch.split(torch.arange(n), max(1, _BLOCK // (4 * d))):
        left = seen.rows[at].double()[:, None, None, :]
        own = seen.pairs[seen.sources[at, 0]].double() * weights[at, 0].view(-1, 1, 1)
        left = left - own[:, :, None, :]
        if sides == 2:
            other = seen.pairs[seen.sources[at, 1]].double() * weights[at, 1].view(-1, 1, 1)
            left = left - other[:, None, :, :]
        found[at] = _log_density(left, deviations[at].view(-1, 1, 1), law, d)
    return found


def _log_density(residual: Tensor, deviation: Tensor, law: Law, values: int) -> Tensor:
    """Of residuals [..., d], but for what is common to a row."""
    if law.noise == "laplace":
        return -residual.abs().sum(-1) * math.sqrt(2) / deviation
    if law.noise == "gaussian":
        return -residual.square().sum(-1) / (2 * deviation.square())
    if law.noise == "sphere":
        radius = deviation * math.sqrt(values)
        norms: Tensor = torch.linalg.vector_norm(residual, dim=-1)
        return -((norms / radius - 1) / _ROUNDING).square() / 2
    return -residual.square().sum(-1) / (2 * _EXACT**2)


def _passed(prior: Tensor, table: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Log-odds [coins] of what is known of coins alone, and of pairs of them by table [m, 2, 2]."""
    to_first, to_second = prior.new_zeros(len(table)), prior.new_zeros(len(table))
    total = prior
    for _ in range(_TURNS):
        from_first, from_second = total[first] - to_first, total[second] - to_second
        new_first = _message(table, from_second)
        new_second = _message(table.transpose(1, 2), from_first)
        to_first = _KEPT * to_first + (1 - _KEPT) * new_first
        to_second = _KEPT * to_second + (1 - _KEPT) * new_second
        total = prior.clone().index_add_(0, first, to_first).index_add_(0, second, to_second)
    return total


def _message(table: Tensor, known: Tensor) -> Tensor:
    """[m] log-odds of a row's one coin, given those [m] of its other one."""
    other = torch.stack([torch.zeros_like(known), known.clamp(-_MOST, _MOST)], 1)
    sides = torch.logsumexp(table + other[:, None, :], dim=2)
    return (sides[:, 1] - sides[:, 0]).clamp(-_MOST, _MOST)


def log_odds_of_sums(sums: Tensor, noise: float, rows: Tensor, labels: Tensor) -> Tensor:
    """[coins] log-odds by class sums [classes, q] of rows [coins, 2, q], and of coins' classes.

    Other coins of the class are taken for more normal noise, of the covariance that theirs is of.
    """
    wide, odds = rows.double(), torch.zeros(len(rows), dtype=torch.float64)
    for c in range(len(sums)):
        at = (labels == c).nonzero()[:, 0]
        apart, middle = wide[at, 1] - wide[at, 0], wide[at].mean(1)
        unsure = apart.T @ apart / 4
        unsure += noise**2 * torch.eye(len(unsure), dtype=torch.float64)
        left = sums[c].double() - middle.sum(0)
        odds[at] = apart @ torch.linalg.solve(unsure, left)
    return odds


def farthest(pairs: Tensor) -> float:
    """The largest distance of two images of a pair."""
    apart = pairs[:, 0].flatten(1).double() - pairs[:, 1].flatten(1).double()
    norms: Tensor = torch.linalg.vector_norm(apart, dim=1)
    return float(norms.max())


def certified(law: Law, distance: float, rounds: int) -> tuple[float | None, str]:
    """μ of all rounds for images so far apart; None, and why, where none is certain."""
    if law.noise == "sphere":
        return None, "sphere noise: its norm tells two images apart whatever the radius"
    if law.noise != "gaussian" or law.exposure is None:
        return None, f"no certificate {with_noise(law)}"
    if law.calibrated:
        return None, f"{', '.join(law.calibrated)} was computed from the audited images; give it"
    return distance * math.sqrt(rounds * law.exposure), ""


def with_noise(law: Law) -> str:
    """In words."""
    return "without noise" if law.noise == "none" else f"with {law.noise} noise"

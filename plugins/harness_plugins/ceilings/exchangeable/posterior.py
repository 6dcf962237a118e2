"""Bayes among exchangeable candidates: what is best for whoever knows all but which one it is.

The attacker is told the weights, the partners, and a shuffled set S that holds the target x and
N-1 others which are exchangeable with it. Whoever knows less, and has no better prior than the
population, has on average over targets no lower squared error than the mean of the posterior over
S, and names x no more often than with its largest probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1 << 21
"""Numbers of a block of logits, float64: 16 MB, of which there are a few at a time."""
COVERED = 2000
"""Candidates at the most among which a ball is looked for: that takes their square."""
SLACK = 1e-4
"""By how much balls are widened, so that rounding never makes a sure bound too small."""

Draw = Callable[[int], "Tensor"]
"""The standard noise [targets, d] of a draw."""


@dataclass(frozen=True)
class Candidates:
    """Targets [t, d] and the others [m, d] that are exchangeable with them, both float32.

    `told` [t, m] bool are no candidates for a target: the attacker knows of them that they are
    other images of its rows. `sets` are disjoint ranges of the others, of growing size.
    """

    targets: Tensor
    others: Tensor
    told: Tensor | None = None
    sets: tuple[slice, ...] = ()

    def to(self, device: torch.device) -> Candidates:
        """The same on a device."""
        told = None if self.told is None else self.told.to(device)
        return Candidates(self.targets.to(device), self.others.to(device), told, self.sets)


@dataclass(frozen=True)
class Best:
    """What is best on average over draws of noise, for each setting and target [settings, t].

    `errors` |x - posterior mean|², `largest` posterior probability, `covered` [settings, radii, t]
    the most that one guess may cover, and `trend` [settings, sets, t] the errors among each
    disjoint set.
    """

    errors: Tensor
    largest: Tensor
    covered: Tensor
    trend: Tensor


def gaussian(
    among: Candidates, variances: Tensor, draw: Draw, draws: int, within: Sequence[float]
) -> Best:
    """Of x seen as N(x, v I), v = `variances` [settings, t]: softmax of -|y - x_k|² / 2v.

    `within` are signal-to-noise ratios in decibels. All settings see the same draws. Products
    are taken in float32 of data that are centred, and logits summed in float64.
    """
    centre = among.others.mean(0)
    others = among.others - centre
    half = _energies(others) / 2
    balls = _Balls.of(among.others, others, within)
    kept = _empty(len(variances), among, within)
    for number in range(draws):
        noise = draw(number)
        for rows in _blocks(among):
            targets = among.targets[rows] - centre
            known = targets @ others.T
            moved = noise[rows] @ others.T
            own = _energies(targets), (noise[rows].double() * targets.double()).sum(1)
            near = balls.around(among.targets[rows], own[0], known)
            for setting, each in enumerate(variances[:, rows].double()):
                v, root = each.view(-1, 1), each.sqrt().view(-1, 1)
                logits = (known + root * moved - half) / v
                first = (own[0] / 2 + each.sqrt() * own[1]) / each
                seen = _Seen.of(first, logits, None if among.told is None else among.told[rows])
                _note(kept, setting, rows, seen, targets, others, balls, near, among.sets)
    return _mean(kept, draws)


def laplace(
    among: Candidates, share: float, scale: float, draw: Draw, draws: int, within: Sequence[float]
) -> Best:
    """Of y = share · x + e, e Laplace noise of a scale: softmax of -|y - share · x_k|₁ / scale.

    `draw` gives Laplace noise of scale 1. One setting, of one row for each target.
    """
    centre = among.others.mean(0)
    others = among.others - centre
    balls = _Balls.of(among.others, others, within)
    kept = _empty(1, among, within)
    for number in range(draws):
        noise = draw(number) * scale
        for rows in _blocks(among):
            targets = among.targets[rows] - centre
            near = balls.around(among.targets[rows], _energies(targets), targets @ others.T)
            seen_as = share * targets + noise[rows]
            logits = -torch.cdist(seen_as, share * others, p=1).double() / scale
            first = -noise[rows].double().abs().sum(1) / scale
            seen = _Seen.of(first, logits, None if among.told is None else among.told[rows])
            _note(kept, 0, rows, seen, targets, others, balls, near, among.sets)
    return _mean(kept, draws)


@dataclass(frozen=True)
class _Seen:
    """Logits of the target [b] and of the others [b, m], float64, -inf for who is told."""

    first: Tensor
    others: Tensor

    @classmethod
    def of(cls, first: Tensor, others: Tensor, told: Tensor | None) -> _Seen:
        return cls(first, others if told is None else others.masked_fill_(told, -torch.inf))

    def posterior(self, part: slice) -> tuple[Tensor, Tensor]:
        """Probabilities of the target [b] and of a part of the others [b, ·], float64."""
        others = self.others[:, part]
        top = torch.maximum(self.first, others.amax(1))
        first, rest = (self.first - top).exp(), (others - top.view(-1, 1)).exp_()
        total = first + rest.sum(1)
        return first / total, rest.div_(total.view(-1, 1))


@dataclass(frozen=True)
class _Balls:
    """Which images one guess may hit together: |x_j - x_k| ≤ ρ_j + ρ_k, ρ = |x| 10^(-s/20).

    A guess g hits image j where |x_j - g| ≤ ρ_j; any two images that it hits are as near as that.
    So all that it hits lie with any one of them in `together` [radii][m, m], and the largest
    posterior mass of such a row is never less than that of what one guess hits.
    """

    radii: Tensor
    together: tuple[Tensor, ...]
    factors: tuple[float, ...]
    energies: Tensor

    @classmethod
    def of(cls, raw: Tensor, others: Tensor, within: Sequence[float]) -> _Balls:
        raw, others = raw[:COVERED], others[:COVERED]
        radii, energies = _energies(raw).sqrt(), _energies(others)
        factors = tuple(10 ** (-each / 20) * (1 + SLACK) for each in within)
        if not factors:
            return cls(radii, (), (), energies)
        squares = energies.view(-1, 1) + energies - 2 * (others @ others.T).double()
        apart = squares.clamp_(min=0).sqrt_().fill_diagonal_(0)
        reach = radii.view(-1, 1) + radii
        together = tuple((apart <= factor * reach).float() for factor in factors)
        return cls(radii, together, factors, energies)

    def around(self, raw: Tensor, energies: Tensor, known: Tensor) -> tuple[Tensor, ...]:
        """[radii][b, m]: who may be hit together with each target."""
        if not self.factors:
            return ()
        squares = energies.view(-1, 1) + self.energies - 2 * known[:, : len(self.radii)].double()
        apart = squares.clamp_(min=0).sqrt_()
        reach = _energies(raw).sqrt().view(-1, 1) + self.radii
        return tuple((apart <= factor * reach).float() for factor in self.factors)

    def covered(self, seen: _Seen, near: tuple[Tensor, ...]) -> list[Tensor]:
        """[radii][b]: the most that one guess may cover, among as many candidates as there are."""
        if not self.factors:
            return []
        own, rest = seen.posterior(slice(len(self.radii)))
        own, rest = own.float(), rest.float()
        found = []
        for together, beside in zip(self.together, near, strict=True):
            around = rest @ together + own.view(-1, 1) * beside
            mine = own + (rest * beside).sum(1)
            found.append(torch.maximum(around.amax(1), mine).clamp(max=1))
        return found


def _empty(settings: int, among: Candidates, within: Sequence[float]) -> Best:
    count = len(among.targets)
    shapes = ((), (), (len(within),), (len(among.sets),))
    zeros = (torch.zeros(settings, *shape, count, dtype=torch.float64) for shape in shapes)
    return Best(*zeros)


def _blocks(among: Candidates) -> Iterator[slice]:
    count, step = len(among.targets), max(1, BLOCK // max(1, len(among.others)))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _energies(rows: Tensor) -> Tensor:
    """[n] |x|² of rows [n, d], summed in float64, without a copy of them all."""
    return torch.cat([part.double().square().sum(1) for part in rows.split(1024)])


def _note(
    kept: Best,
    setting: int,
    rows: slice,
    seen: _Seen,
    targets: Tensor,
    others: Tensor,
    balls: _Balls,
    near: tuple[Tensor, ...],
    sets: tuple[slice, ...],
) -> None:
    """Add what one block comes to in one draw."""
    own, rest = seen.posterior(slice(None))
    kept.errors[setting, rows] += _error(rest, targets, others).cpu()
    kept.largest[setting, rows] += torch.maximum(own, rest.amax(1)).cpu()
    for place, share in enumerate(balls.covered(seen, near)):
        kept.covered[setting, place, rows] += share.cpu()
    for place, part in enumerate(sets):
        _, rest = seen.posterior(part)
        kept.trend[setting, place, rows] += _error(rest, targets, others[part]).cpu()


def _error(rest: Tensor, targets: Tensor, others: Tensor) -> Tensor:
    """[b] |x - posterior mean|² = |(1-p) x - Σ p_k x_k|², 1-p the sum of the others' p_k."""
    wrong = rest.sum(1).float().view(-1, 1)
    return _energies(wrong * targets - rest.float() @ others)


def _mean(kept: Best, draws: int) -> Best:
    parts = (kept.errors, kept.largest, kept.covered, kept.trend)
    return Best(*(part.div_(draws) for part in parts))

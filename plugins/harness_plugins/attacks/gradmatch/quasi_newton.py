"""L-BFGS on many independent problems at once, each with its own memory and step length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness_plugins.attacks.gradmatch.search import Found

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.gradmatch.search import LossOf, Stepped

SUFFICIENT = 1e-4
"""Share of the promised decrease that a step must bring (Armijo)."""
SHORTEST = 1e-8
"""A step below this share of the direction ends a problem: nothing along it is better."""
LEAST_CURVATURE = 1e-12


class _Memory:
    """The last `size` steps of P problems of D numbers, and how their gradients changed."""

    def __init__(self, size: int, like: Tensor) -> None:
        self.steps = like.new_zeros(size, *like.shape)
        self.changes = like.new_zeros(size, *like.shape)
        self.inverse = like.new_zeros(size, len(like))
        self.count = torch.zeros(len(like), dtype=torch.long, device=like.device)

    def keep(self, rows: Tensor, step: Tensor, change: Tensor) -> None:
        """Add a pair to the problems `rows`, where the curvature along it is positive."""
        curved = (step * change).sum(1)
        good = curved > LEAST_CURVATURE * change.square().sum(1)
        rows, step, change, curved = rows[good], step[good], change[good], curved[good]
        slot = self.count[rows] % len(self.steps)
        self.steps[slot, rows], self.changes[slot, rows] = step, change
        self.inverse[slot, rows] = curved.reciprocal()
        self.count[rows] += 1

    def forget(self, rows: Tensor) -> None:
        """Start anew."""
        self.count[rows] = 0

    def direction(self, gradient: Tensor) -> Tensor:
        """−H g [P, D] by the two-loop recursion (Nocedal & Wright, algorithm 7.4)."""
        size, each = len(self.steps), torch.arange(len(gradient), device=gradient.device)
        depth = int(self.count.max().clamp(max=size))
        ages = [((self.count - 1 - age) % size, age < self.count) for age in range(depth)]
        pull, shares = gradient.clone(), []
        for slot, there in ages:
            share = (self.inverse[slot, each] * (self.steps[slot, each] * pull).sum(1)) * there
            pull -= share.unsqueeze(1) * self.changes[slot, each]
            shares.append(share)
        pull *= self._scale(each).unsqueeze(1)
        for (slot, there), share in zip(reversed(ages), reversed(shares), strict=True):
            back = (self.inverse[slot, each] * (self.changes[slot, each] * pull).sum(1)) * there
            pull += (share - back).unsqueeze(1) * self.steps[slot, each]
        return -pull

    def _scale(self, each: Tensor) -> Tensor:
        slot = (self.count - 1) % len(self.steps)
        change = self.changes[slot, each].square().sum(1)
        scale = 1 / (self.inverse[slot, each] * change).clamp(min=LEAST_CURVATURE)
        return scale.where(self.count > 0, torch.ones_like(scale))


def minimise(
    loss_of: LossOf, start: list[Tensor], *, evaluations: int, stepped: Stepped, memory: int = 50
) -> Found:
    """At most so many evaluations; every one tries a step of every problem.

    A problem whose step does not decrease its loss enough tries a shorter one in the next
    evaluation, while others move on. One that finds no better point any more rests.
    """
    search = _Search(loss_of, start, memory)
    for evaluation in range(evaluations):
        if not search.advance():
            break
        stepped(evaluation + 1)
    return Found(search.unpack(search.at), search.loss)


class _Search:
    def __init__(self, loss_of: LossOf, start: list[Tensor], memory: int) -> None:
        self.loss_of = loss_of
        self.shapes = [each.shape for each in start]
        self.at = torch.cat([each.flatten(1) for each in start], 1)
        self.loss, self.gradient = self._evaluate(self.at)
        self.resting = ~self.loss.isfinite()
        self.loss = self.loss.where(~self.resting, torch.inf)
        self.memory = _Memory(memory, self.at)
        self.along = -self.gradient
        self.length = self._first_length()

    def unpack(self, flat: Tensor) -> list[Tensor]:
        """[P, D] as the variables it was made of."""
        sizes = [shape[1:].numel() for shape in self.shapes]
        parts = flat.split(sizes, 1)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _evaluate(self, at: Tensor) -> tuple[Tensor, Tensor]:
        flat = at.detach().requires_grad_()
        losses = self.loss_of(self.unpack(flat))
        gradient = torch.autograd.grad(losses.sum(), flat)[0]
        finite = losses.isfinite() & gradient.isfinite().all(1)
        return losses.detach().where(finite, torch.nan), gradient.nan_to_num(0, 0, 0)

    def _first_length(self) -> Tensor:
        """Of a step along the bare gradient, whose length says nothing."""
        return (1 / self.gradient.abs().sum(1).clamp(min=1e-12)).clamp(max=1.0)

    def advance(self) -> bool:
        """Try one step of every problem; False where all of them rest."""
        if bool(self.resting.all()):
            return False
        trial = self.at + (self.length * ~self.resting).unsqueeze(1) * self.along
        loss, gradient = self._evaluate(trial)
        slope = (self.gradient * self.along).sum(1)
        enough = loss <= self.loss + SUFFICIENT * self.length * slope
        better = enough & (loss < self.loss) & ~self.resting
        self._move(better.nonzero().flatten(), trial, loss, gradient)
        self._shorten(~better & ~self.resting)
        return True

    def _move(self, rows: Tensor, trial: Tensor, loss: Tensor, gradient: Tensor) -> None:
        if not len(rows):
            return
        self.memory.keep(rows, (trial - self.at)[rows], (gradient - self.gradient)[rows])
        self.at[rows], self.loss[rows] = trial[rows], loss[rows]
        self.gradient[rows] = gradient[rows]
        along = self.memory.direction(self.gradient)
        uphill = (along * self.gradient).sum(1) >= 0
        self.memory.forget((uphill & self._among(rows)).nonzero().flatten())
        along = torch.where(uphill.unsqueeze(1), -self.gradient, along)
        self.along[rows] = along[rows]
        fresh = torch.where(self.memory.count > 0, 1.0, self._first_length())
        self.length[rows] = fresh[rows]

    def _among(self, rows: Tensor) -> Tensor:
        chosen = torch.zeros(len(self.at), dtype=torch.bool, device=self.at.device)
        chosen[rows] = True
        return chosen

    def _shorten(self, failed: Tensor) -> None:
        """Half the step; where that is next to nothing, the bare gradient, and then rest."""
        self.length = torch.where(failed, self.length / 2, self.length)
        stuck = failed & (self.length < SHORTEST * self._first_length())
        last_try = stuck & (self.memory.count == 0)
        self.resting |= last_try
        again = (stuck & ~last_try).nonzero().flatten()
        self.memory.forget(again)
        self.along[again] = -self.gradient[again]
        self.length[again] = self._first_length()[again]

"""All searches of one release: each released gradient as often as there are restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from harness_plugins.attacks.gradmatch import quasi_newton
from harness_plugins.attacks.gradmatch.angles import AngleByLayer
from harness_plugins.attacks.gradmatch.gradients import BatchedGradients
from harness_plugins.attacks.gradmatch.objective import Apart
from harness_plugins.attacks.gradmatch.search import Found, descend

if TYPE_CHECKING:
    from torch import Tensor, nn

    from harness.api import Progress, Stream
    from harness_plugins.attacks.gradmatch import GradmatchConfig
    from harness_plugins.attacks.gradmatch.distances import Observed
    from harness_plugins.attacks.gradmatch.inputs import Inputs
    from harness_plugins.attacks.gradmatch.objective import Distance, Objective
    from harness_plugins.attacks.gradmatch.search import LossOf, Stepped


MOST_FORMED, MOST_OBSERVED = 4_000_000, 64_000_000
"""Values in the gradients of one graph: those that are formed, and those they are held against."""


def distance_of(
    model: nn.Module,
    observed: Observed,
    kind: Literal["cosine", "l2"],
    like: Tensor,
    *,
    train: bool,
    watched: bool = False,
) -> Distance:
    """Large gradients are not formed where their angle can be had without.

    `like`: inputs of one problem [b, *shape]; `watched`: moments of BatchNorm are asked for.
    """
    if kind == "cosine" and not watched and observed.values > MOST_FORMED:
        angle = AngleByLayer.of(model, observed, like, train=train)
        if angle is not None:
            return angle
    return Apart(BatchedGradients(model, train=train, watched=watched), observed, kind)


def at_once(distance: Distance, most: int) -> int:
    """Problems of one graph, `most` at the most."""
    formed = MOST_FORMED // max(1, distance.formed)
    return max(1, min(most, formed, MOST_OBSERVED // distance.observed.values))


@dataclass(frozen=True)
class Matched:
    """The best restart of each released gradient.

    `inputs` [batches, b, *shape], soft `labels` [batches, b, classes], and `losses` [batches],
    infinite where all restarts diverged; of all `restarts`, so many `diverged`.
    """

    inputs: Tensor
    labels: Tensor
    losses: Tensor
    restarts: int
    diverged: int


@dataclass(frozen=True)
class Turn:
    """One graph `of` several, and whom to tell how far it is."""

    number: int
    of: int
    progress: Progress


@dataclass(frozen=True)
class Matching:
    """What is searched for: `batches` released gradients of `shape` (b, *input shape) each.

    `labels` [batches, b, classes] are None where they are searched for as well.
    """

    config: GradmatchConfig
    objective: Objective
    inputs: Inputs
    labels: Tensor | None
    batches: int
    shape: tuple[int, ...]
    classes: int
    stream: Stream
    device: torch.device

    def run(self, rows: Tensor, progress: Progress) -> Matched:
        """Search the gradients `rows`; of the others nothing is said, and their loss infinite."""
        restarts = self.config.restarts
        problems = rows.repeat_interleave(restarts)
        size = self._at_once()
        starts = [start.split(size) for start in self._start(len(problems))]
        parts = list(zip(problems.split(size), *starts, strict=True))
        found = [
            self._part(part, start, Turn(i, len(parts), progress))
            for i, (part, *start) in enumerate(parts)
        ]
        losses = torch.cat([each.losses for each in found])
        inputs, labels = (torch.cat([each.variables[i] for each in found]) for i in (0, 1))
        first = torch.arange(0, len(losses), restarts, device=losses.device)
        best = first + losses.view(-1, restarts).argmin(1)
        return Matched(
            inputs=self._placed(inputs[best], rows, torch.nan),
            labels=self._placed(labels[best], rows, torch.nan)
            if self.labels is None
            else self.labels,
            losses=self._placed(losses[best], rows, torch.inf),
            restarts=len(losses),
            diverged=int((~losses.isfinite()).sum()),
        )

    def _placed(self, values: Tensor, rows: Tensor, fill: float) -> Tensor:
        """[batches, ...] with `values` in the given rows."""
        placed = values.new_full((self.batches, *values.shape[1:]), fill)
        placed[rows] = values
        return placed

    def _at_once(self) -> int:
        """Problems of one graph: as many as asked for, of large models fewer.

        Beyond some millions of values in gradients a graph of many is slower than one by one.
        """
        return at_once(self.objective.distance, self.config.at_once)

    def _part(self, rows: Tensor, start: list[Tensor], turn: Turn) -> Found:
        """Some problems in one graph: their inputs, and labels [P, b, classes]."""
        objective, unit, steps = self.objective[rows], self.inputs.unit, self.config.steps
        known = None if self.labels is None else self.labels[rows]

        def told(variables: list[Tensor]) -> Tensor:
            return variables[1].softmax(2) if known is None else known

        def loss_of(variables: list[Tensor]) -> Tensor:
            return objective(variables[0] * unit, told(variables))

        def stepped(step: int) -> None:
            turn.progress(turn.number * steps + step, turn.of * steps)

        found = self._minimise(loss_of, start, stepped)
        return Found([found.variables[0] * unit, told(found.variables)], found.losses)

    def _start(self, count: int) -> list[Tensor]:
        """Standard normal inputs, in units, and logits of labels if those are searched for."""
        stream = self.stream.stream(use="start")
        start = [stream.normal(count, *self.shape)]
        if self.labels is None:
            logits = stream.stream(use="labels").normal(count, self.shape[0], self.classes)
            start.append(logits)
        return [each.to(self.device) for each in start]

    def _minimise(self, loss_of: LossOf, start: list[Tensor], stepped: Stepped) -> Found:
        config = self.config
        if config.optimizer == "lbfgs":
            return quasi_newton.minimise(loss_of, start, evaluations=config.steps, stepped=stepped)
        return descend(
            loss_of,
            start,
            steps=config.steps,
            lr=config.lr,
            signed=config.optimizer == "signed-adam",
            hold=self._hold,
            stepped=stepped,
        )

    def _hold(self, variables: list[Tensor]) -> None:
        if self.config.box:
            self.inputs.hold(variables[0])

"""All searches of one release: each released gradient as often as there are restarts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from harness_plugins.attacks.gradmatch import quasi_newton
from harness_plugins.attacks.gradmatch.angles import AngleByLayer
from harness_plugins.attacks.gradmatch.distances import FormedDistance
from harness_plugins.attacks.gradmatch.gradients import BatchedGradients
from harness_plugins.attacks.gradmatch.search import Found, descend

if TYPE_CHECKING:
    from torch import Tensor, nn

    from harness.api import Progress, Stream
    from harness_plugins.attacks.gradmatch import GradmatchConfig
    from harness_plugins.attacks.gradmatch.distances import Distance, Observed
    from harness_plugins.attacks.gradmatch.inputs import Inputs
    from harness_plugins.attacks.gradmatch.objective import Objective
    from harness_plugins.attacks.gradmatch.search import LossOf, Stepped


MOST_HELD = 4_000_000
"""Values in the gradients of one graph: with more, one by one is faster."""
MOST_OBSERVED = 64_000_000
"""Values that the gradients of one graph are held against."""


def distance_of(
    model: nn.Module,
    observed: Observed,
    kind: Literal["cosine", "l2"],
    like: Tensor,
    *,
    train: bool,
    watched: bool = False,
) -> Distance:
    """Gradients too large for several in one graph are not formed where that helps.

    `like`: inputs of one problem [b, *shape]; `watched`: moments of BatchNorm are asked for.
    """
    formed = FormedDistance(BatchedGradients(model, train=train, watched=watched), observed, kind)
    if kind == "cosine" and at_once(formed, 2) < 2:
        angle = AngleByLayer.of(formed, like)
        if angle is not None and at_once(angle, 2) == 2:
            return angle
    return formed


def at_once(distance: Distance, most: int) -> int:
    """Problems of one graph, `most` at the most."""
    held = MOST_HELD // max(1, distance.held)
    return max(1, min(most, held, MOST_OBSERVED // distance.observed.values))


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
        size = at_once(self.objective.distance, self.config.at_once)
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

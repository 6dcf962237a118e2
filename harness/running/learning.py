"""What is learned in a cell: by learners from what leaves, or by the owner's own victim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.api.errors import CellFailed, NotApplicable, UsageError
from harness.rng import public_stream
from harness.running.learn import LearnStage
from harness.running.train import trained
from harness.scoring.flags import Flag, accuracy_flags, failure_flags, first_line
from harness.scoring.utility import Tried, Utility, best_of

if TYPE_CHECKING:
    from torch import Tensor

    from harness.asking.request import Resolved
    from harness.running.run import Run


@dataclass(frozen=True)
class Learning:
    """What a record says of utility.

    `learners` are those that had a part, as written; of a victim there are `measures`.
    """

    utility: Utility | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    learners: Mapping[str, Resolved] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()


def learning(run: Run) -> Learning:
    """What is learned of encodings that leave; else what the owner's own victim learned."""
    if not run.cell.learns:
        utility, measures = trained(run)
        return Learning(utility, measures, flags=tuple(accuracy_flags(utility)))
    own, failed = _tried(run, LearnStage.own(run.cell))
    plain, unlearned = _tried(run, LearnStage.unprotected(run.cell))
    if not own:
        raise _nobody(failed)
    reported = _halves(run)[1]
    labels = run.splits.test.labels[reported]
    utility = best_of(
        own,
        plain,
        chance=labels.bincount().max().item() / len(labels),
        n=len(labels),
        left_out={name: first_line(error) for name, error in failed.items()},
        reference_left_out={name: first_line(error) for name, error in unlearned.items()},
    )
    bare = {f"{name} on unprotected images": error for name, error in unlearned.items()}
    faults = {n: e for n, e in {**failed, **bare}.items() if not isinstance(e, NotApplicable)}
    flags = [*failure_flags("learner", faults), *accuracy_flags(utility)]
    return Learning(utility, learners=run.cell.learners, flags=tuple(flags))


def _nobody(failed: Mapping[str, CellFailed]) -> CellFailed:
    """The error where no learner came to an end: what all of them met, or each its own."""
    errors = list(failed.values())
    if len({first_line(error) for error in errors}) == 1:
        return errors[0]
    reasons = "; ".join(f"{name}: {first_line(error)}" for name, error in failed.items())
    return CellFailed(f"no learner came to an end ({reasons})")


def _tried(run: Run, stages: list[LearnStage]) -> tuple[dict[str, Tried], dict[str, CellFailed]]:
    """By learner what it named rightly, and why some did not come to an end."""
    shares: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, CellFailed] = {}
    halves, labels = _halves(run), run.splits.test.labels
    for stage in stages:
        try:
            answered = run(stage)
        except CellFailed as error:
            failed.setdefault(stage.written, error)
            continue
        run.timing.setdefault(stage.label, round(answered.seconds, 3))
        run.peak_memory[stage.label] = answered.megabytes
        right = answered.logits.argmax(1) == labels
        first, second = (int(right[half].sum()) / len(half) for half in halves)
        shares.setdefault(stage.written, []).append((first, second))
    return {
        name: Tried(validation=tuple(v for v, _ in found), reported=tuple(r for _, r in found))
        for name, found in shares.items()
        if name not in failed
    }, failed


def _halves(run: Run) -> tuple[Tensor, Tensor]:
    """Test images to choose a learner by, and those that its accuracy is reported on."""
    n = len(run.splits.test)
    if n < 2:
        raise UsageError("Learners are chosen on half of the test images; --test-size 2 at least.")
    order = public_stream(run.cell.request.seed).stream(what="halves").permutation(n)
    return order[: n // 2], order[n // 2 :]

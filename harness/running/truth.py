"""What attacks are judged on: private images, or images that the victim was not trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.api.data import Splits
from harness.api.errors import UsageError
from harness.api.knowledge import ReleaseKind
from harness.running.space import Space
from harness.running.stage import Output

if TYPE_CHECKING:
    from harness.running.run import Run

HELD_OUT = 100
"""Held-out images that are judged where the user names no number: as many as MixCon inverts."""
OF_GRADIENTS = 16
"""Images judged of gradients, where the user names no number: each costs a model's size."""


@dataclass(frozen=True)
class JudgedSplits:
    """`splits` whose first `targets` private images are judged; `batches` of them for gradients.

    Held-out images stand as `private`, and `test` has none of them.
    """

    splits: Splits
    targets: int
    batches: int


@dataclass(frozen=True, eq=False)
class Truth(Output[JudgedSplits]):
    """The splits as the judge has them."""

    @property
    def inputs(self) -> tuple[Space]:
        """All samples."""
        return (Space(self.cell),)

    def facts(self) -> dict[str, Any]:
        """Which images are judged, and how many."""
        request = self.cell.request
        gradients = self.cell.kind is ReleaseKind.GRADIENTS
        batch = request.batch_size if gradients else None
        return {"targets": [request.targets_from, request.targets, batch]}

    def obtain(self, run: Run) -> JudgedSplits:
        """Of gradients, no more than full batches hold."""
        splits, request = run(Space(self.cell)), self.cell.request
        gradients = self.cell.kind is ReleaseKind.GRADIENTS
        default = OF_GRADIENTS if gradients else len(splits.private)
        wanted = min(request.targets or default, len(splits.private))
        size = request.batch_size
        batches = max(1, min(-(-wanted // size), len(splits.private) // size))
        if self.cell.held_out:
            judged = held_out(splits, request.targets)
            return JudgedSplits(judged, len(judged.private), batches)
        return JudgedSplits(splits, min(wanted, batches * size) if gradients else wanted, batches)


def held_out(splits: Splits, asked: int | None) -> Splits:
    """The splits as the judge has them: the first test images are `private`, the others `test`.

    `asked` images; 100 where that is None, or all test images if those are fewer. UsageError
    where there are none, or more were asked for.
    """
    available = len(splits.test)
    count = min(HELD_OUT, available) if asked is None else asked
    if not 0 < count <= available:
        raise UsageError(
            f"{asked or 'some'} held-out targets were asked for, and there are {available} test "
            "images; raise --test-size or lower --targets."
        )
    return replace(splits, private=splits.test[:count], test=splits.test[count:])

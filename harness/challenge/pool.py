"""Which images of a dataset are surely public, and which the private ones are drawn from.

The draw is public, of a seed that the pack names: half of the training images are set aside, and
the others are the public pool. Which of those set aside are private, the owner's key says.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from harness.api import Samples, Splits, Stream, UsageError
from harness.asking.selector import Resolved
from harness.running.context import Context, plugin_boundary
from harness.running.load import SplitSizes, load


def draw(context: Context, public: int) -> Splits:
    """Splits whose `private` images are all that were set aside; none are for tests."""
    cell = context.cell
    collection = _collection(context, cell.dataset)
    other = _collection(context, cell.public) if cell.public else None
    sizes = SplitSizes(len(collection.train), public, 0, frozenset({"private", "public"}))
    return load(collection, other, sizes, context.board.stream(stage="challenge"))


def _collection(context: Context, resolved: Resolved) -> Any:
    dataset = context.build("datasets", resolved)
    with plugin_boundary(resolved.name):
        return dataset.load(context.assets)


def choose(splits: Splits, count: int, stream: Stream) -> Splits:
    """As many private images of those set aside, by a secret stream."""
    if count > len(splits.private):
        raise UsageError(
            f"{count} private images were asked for, and the dataset has {len(splits.private)} "
            "set aside for them to be drawn from."
        )
    chosen = stream.permutation(len(splits.private))[:count]
    return replace(splits, private=splits.private[chosen])


def pool_sha256(public: Samples) -> str:
    """A hash of the pool's images."""
    return hashlib.sha256(public.images.contiguous().numpy().data).hexdigest()

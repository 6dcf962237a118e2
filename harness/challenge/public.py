"""Which images of a dataset are surely public, drawn by the owner and again by a stranger.

The draw is public, of a seed that the pack names: half of the training images are set aside, and
the others are the public pool. Which of those set aside are private, the owner's key says.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from harness.api import IntegrityError, Samples, Splits, Stream, UsageError
from harness.asking.registry import registry
from harness.challenge.pack import Data, Pack
from harness.packages.samples import opened, require_known, written
from harness.rng import public_stream
from harness.running.load import SplitSizes, collection_of, load
from harness.running.run import Observer, Run


def draw(run: Run, public: int) -> Splits:
    """Splits whose `private` images are all that were set aside; none are for tests."""
    cell = run.cell
    collection = collection_of(run, cell.dataset)
    other = collection_of(run, cell.public) if cell.public else None
    sizes = SplitSizes(len(collection.train), public, 0, frozenset({"private", "public"}))
    return load(
        collection, other, sizes, public_stream(cell.request.seed).stream(stage="challenge")
    )


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


def public_splits(pack: Pack) -> Splits:
    """The splits of a pack, private ones being all that were set aside.

    UsageError where a dataset is unknown or the owner's own, AssetUnavailable where it is not
    here, IntegrityError where it is not what the owner had.
    """
    return drawn(stranger(pack, Observer()), pack)


def drawn(run: Run, pack: Pack) -> Splits:
    """The splits of a pack, drawn again in a run of `stranger`."""
    public = pack.described.public
    if not public.images:
        raise UsageError("the pack names no public images")
    splits = draw(run, public.images)
    if pool_sha256(splits.public) != public.sha256:
        raise IntegrityError(
            f"the public images drawn from '{run.cell.dataset.name}' are not those of the "
            "pack: another version of the dataset, perhaps"
        )
    return splits


def stranger(pack: Pack, observer: Observer, **options: Any) -> Run:
    """A run of a pack's cell: its datasets and its defense, as the pack says they are.

    `options` are those of `harness evaluate`. It has no owner's key; nothing of it is secret.
    """
    said, public = pack.said, pack.described.public
    require_known(said.law, registry())
    return opened(
        observer,
        **{"device": "cpu", **options},
        defense=written(said.law),
        dataset=_named(pack.described.dataset),
        public=_named(public.dataset) if public.dataset else None,
        private_size=said.rows,
        public_size=max(1, public.images),
        rounds=said.rounds,
        seed=public.seed,
    )


def _named(data: Data) -> str:
    """As it is written on the command line."""
    if isinstance(data, str):
        raise UsageError(f"the pack's images are {data}")
    return written(data)

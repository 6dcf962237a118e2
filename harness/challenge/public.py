"""Which images of a dataset are surely public, drawn by the owner and again by a stranger.

The draw is public, of a seed that the pack names: half of the training images are set aside, and
the others are the public pool. Which of those set aside are private, the owner's key says.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.api import IntegrityError, Samples, Splits, Stream, UsageError
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import Resolved, make_request
from harness.challenge.pack import Named, Statement
from harness.rng import public_stream
from harness.running.load import SplitSizes, collection_of, load
from harness.running.run import Observer, Run, check_machine, equip
from harness.store import Store, cache_root


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


def public_splits(statement: Statement) -> Splits:
    """The splits of a pack, private ones being all that were set aside.

    UsageError where a dataset is unknown or the owner's own, AssetUnavailable where it is not
    here, IntegrityError where it is not what the owner had.
    """
    return drawn(stranger(statement, only="utility"), statement)


def drawn(run: Run, statement: Statement) -> Splits:
    """The splits of a pack, drawn again in a run of `stranger`."""
    if not statement.public.images:
        raise UsageError("the pack names no public images")
    splits = draw(run, statement.public.images)
    if pool_sha256(splits.public) != statement.public.sha256:
        raise IntegrityError(
            f"the public images drawn from '{run.cell.dataset.name}' are not those of the "
            "pack: another version of the dataset, perhaps"
        )
    return splits


def stranger(statement: Statement, observer: Observer | None = None, **options: Any) -> Run:
    """A run of a pack's cell: its datasets and its defense, as the pack says they are.

    `options` are those of `harness evaluate`. It has no owner's key; nothing of it is secret.
    """
    request = make_request(
        **{"preset": "standard", "metrics": "ssim", "device": "cpu", **options},
        defense=statement.defense.name,
        dataset=statement.dataset.name,
        public=statement.public.dataset.name if statement.public.dataset else None,
        private_size=statement.private,
        public_size=max(1, statement.public.images),
        rounds=statement.rounds,
        seed=statement.public.seed,
    )
    root = cache_root()
    planned, public = plan(request, registry()), statement.public.dataset
    cell = replace(
        planned,
        dataset=_configured(planned.dataset, statement.dataset),
        public=_configured(planned.public, public) if planned.public and public else None,
        defenses=tuple(_configured(defense, statement.defense) for defense in planned.defenses),
    )
    cell = equip(cell, root)
    check_machine(cell.device)
    return Run(cell, Store(root), registry(), observer=observer)


def _configured(resolved: Resolved, named: Named) -> Resolved:
    if named.config is None:
        raise UsageError(f"'{named.name}' holds images of the owner's own")
    model: type[BaseModel] = resolved.spec.config
    try:
        return replace(resolved, config=model.model_validate(named.config))
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UsageError(
            f"'{named.name}' here does not know the pack's options: {reason}"
        ) from None

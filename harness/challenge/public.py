"""A pack in the hands of somebody who has the datasets: its public images, drawn again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.api import IntegrityError, Splits, UsageError
from harness.asking.plan import Cell, plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.asking.selector import Resolved
from harness.challenge.pack import Named, Statement
from harness.challenge.pool import draw, pool_sha256
from harness.running.context import Context
from harness.running.evaluation import check_machine, equip
from harness.running.keys import Keys
from harness.running.observer import Observer
from harness.store import Store, cache_root


def public_splits(said: Statement) -> Splits:
    """The splits of a pack, private ones being all that were set aside.

    UsageError where a dataset is unknown or the owner's own, AssetUnavailable where it is not
    here, IntegrityError where it is not what the owner had.
    """
    return drawn(stranger(said, only="utility"), said)


def drawn(context: Context, said: Statement) -> Splits:
    """The splits of a pack, drawn again in a context of `stranger`."""
    if not said.public.images:
        raise UsageError("the pack names no public images")
    splits = draw(context, said.public.images)
    if pool_sha256(splits.public) != said.public.sha256:
        raise IntegrityError(
            f"the public images drawn from '{context.cell.dataset.name}' are not those of the "
            "pack: another version of the dataset, perhaps"
        )
    return splits


def stranger(said: Statement, observer: Observer | None = None, **options: Any) -> Context:
    """A context for a pack's cell: its datasets and its defense, as the pack says they are.

    `options` are those of `harness evaluate`. It has no owner's key; nothing of it is secret.
    """
    request = make_request(
        **{"preset": "standard", "metrics": "ssim", "device": "cpu", **options},
        defense=said.defense.name,
        dataset=said.dataset.name,
        public=said.public.dataset.name if said.public.dataset else None,
        private_size=said.private,
        public_size=max(1, said.public.images),
        rounds=said.rounds,
        seed=said.public.seed,
    )
    root = cache_root()
    cell = equip(as_said(plan(request, registry()), said), root)
    check_machine(cell.device)
    return Context(cell, Keys(cell, ""), Store(root), registry(), observer or Observer())


def as_said(cell: Cell, said: Statement) -> Cell:
    """The cell with the configs that the pack gives."""
    public = said.public.dataset
    return replace(
        cell,
        dataset=_configured(cell.dataset, said.dataset),
        public=_configured(cell.public, public) if cell.public and public else None,
        defenses=tuple(_configured(defense, said.defense) for defense in cell.defenses),
    )


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

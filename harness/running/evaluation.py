"""`evaluate`: one request in, one record out, whatever happens in between."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.api.errors import (
    AssetUnavailable,
    CellFailed,
    CellTimedOut,
    NotApplicable,
    PluginError,
    UsageError,
)
from harness.api.knowledge import ReleaseKind, ThreatModel
from harness.api.plugins import Config
from harness.asking.plan import Cell, plan
from harness.asking.registry import Registry, registry
from harness.asking.request import Request, make_request
from harness.asking.selector import Resolved
from harness.assets.lookup import locate
from harness.running.keys import STAGES, Keys, plugin_source
from harness.running.observer import Observer
from harness.scheduling.steps import Step
from harness.scoring.flag import Flag
from harness.store import Store, cache_root
from harness.store.provenance import (
    available_threads,
    can_compute_on,
    code_state,
    device_class,
    package_versions,
    python_version,
)
from harness.store.record import Records, RunRecord, Status, Used

QUICK_FLAG = Flag(
    name="unranked",
    message="the quick preset is for a first look; a board takes only standard or paper runs",
)


def evaluate(
    *,
    observer: Observer | None = None,
    cache: Path | None = None,
    owner_key: bytes | None = None,
    force: str | None = None,
    **options: Any,
) -> RunRecord:
    """Evaluate one cell and return its record.

    `options` are those of `harness evaluate` with underscores: `defense`, `attack`, `dataset`,
    `preset`, `seed`, …. Raises UsageError for what cannot be asked and AssetUnavailable for data
    that is not here. A stage that fails comes back as a record whose `status` says so.
    """
    root = cache or cache_root()
    check_stage(force)
    known = registry()
    cell = equip(plan(make_request(**options), known), root)
    keys = Keys(cell, fingerprint(owner_key))
    stored = None if force else Records(root).answer(keys.record)
    if stored:
        return stored
    if cell.reason:
        return _ended(cell, keys, known, root, "not_applicable", cell.reason)
    check_machine(cell.device)
    return _evaluate(cell, keys, known, root, observer or Observer(), owner_key, force)


def advance(step: Step, *, observer: Observer | None = None, **options: Any) -> None:
    """Make and store what one step of a cell puts out, for `evaluate` to find.

    CellFailed and PluginError where the cell ends there.
    """
    from harness.running.context import Context
    from harness.running.inline import advance as make

    root, known = cache_root(), registry()
    cell = equip(plan(make_request(**options), known), root)
    check_machine(cell.device)
    keys = Keys(cell, fingerprint(None))
    make(Context(cell, keys, Store(root), known, observer or Observer()), step)


def conclude(status: Status, error: str, **options: Any) -> RunRecord:
    """The record of a cell that ended before it had a result; it is kept."""
    root, known = cache_root(), registry()
    cell = equip(plan(make_request(**options), known), root)
    return _ended(cell, Keys(cell, fingerprint(None)), known, root, status, error)


def fingerprint(secret: bytes | None) -> str:
    """What a record says of the owner's key: never the key."""
    if secret is None:
        return "derived from the seed"
    return f"sha256:{hashlib.sha256(b'owner key' + secret).hexdigest()[:16]}"


def equip(cell: Cell, root: Path) -> Cell:
    """Fix what depends on this machine: device, threads, and which assets are here.

    AssetUnavailable where what the cell cannot do without is not.
    """
    if lacking := lacks(cell, root):
        raise AssetUnavailable(lacking)
    return settle(cell, root)


def lacks(cell: Cell, root: Path) -> str:
    """What a cell cannot do without and is not here, and how to get it; empty if nothing."""
    try:
        for resolved in filter(None, (cell.dataset, cell.public, cell.space)):
            for asset in resolved.spec.assets:
                locate(asset, root)
    except AssetUnavailable as error:
        return str(error)
    return ""


def settle(cell: Cell, root: Path) -> Cell:
    """As `equip`, of a cell that need not run: its data may be missing."""
    fingerprints = {
        resolved.written: _fingerprint_of(resolved)
        for resolved in filter(None, (cell.dataset, cell.public))
        if resolved.spec.fingerprint
    }
    unavailable = dict(cell.unavailable)
    for spec in cell.metrics:
        if spec.name in unavailable:
            continue
        try:
            for asset in spec.assets:
                locate(asset, root)
        except AssetUnavailable as error:
            unavailable[spec.name] = str(error)
    return replace(
        cell,
        device=device_class(cell.request.device),
        threads=cell.request.threads or available_threads(),
        unavailable=unavailable,
        fingerprints=fingerprints,
    )


def _fingerprint_of(resolved: Resolved) -> str:
    """What names a dataset's data where no asset does."""
    module, _, function = resolved.spec.fingerprint.partition(":")
    found: str = getattr(import_module(module), function)(resolved.config)
    return found


def _evaluate(
    cell: Cell,
    keys: Keys,
    known: Registry,
    root: Path,
    observer: Observer,
    secret: bytes | None,
    force: str | None,
) -> RunRecord:
    """Run a cell; a failure of its own is a record, anything else is raised."""
    from harness.running.context import Context
    from harness.running.inline import run

    context = Context(cell, keys, Store(root), known, observer, secret=secret, force=force)
    try:
        return run(context, lambda values: _full(cell, keys, known, values))
    except CellTimedOut as error:
        return _ended(cell, keys, known, root, "timeout", str(error))
    except NotApplicable as error:
        return _ended(cell, keys, known, root, "not_applicable", str(error))
    except (CellFailed, PluginError) as error:
        return _ended(cell, keys, known, root, "failed", str(error))


def _used(
    known: Registry, kind: str, resolved: Resolved, parameters: Mapping[str, Any] | None = None
) -> Used:
    return Used(
        name=resolved.name,
        version=resolved.spec.version,
        distribution=known.origin(kind, resolved.name).distribution,
        source_sha256=plugin_source(resolved),
        config=resolved.config.model_dump(mode="json"),
        resolved=dict(parameters or {}),
    )


def _common(
    cell: Cell,
    keys: Keys,
    known: Registry,
    resolved: Mapping[str, Any],
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What every record of this cell says, whatever becomes of it."""
    request: Request = cell.request
    return {
        "request": request,
        "defense": tuple(_used(known, "defenses", d, resolved.get(d.name)) for d in cell.defenses),
        "attack": _used(known, "attacks", cell.attack),
        "dataset": _used(known, "datasets", cell.dataset),
        "public": _used(known, "datasets", cell.public) if cell.public else None,
        "victim": _used(known, "victims", cell.victim, recipe),
        "space": _used(known, "spaces", cell.space),
        "threat_model": request.threat_model,
        "release_kind": cell.kind,
        "channels_used": tuple(sorted(cell.channels)),
        "seeds": {"seed": request.seed, "owner_key": keys.owner},
        "device": cell.device,
        "threads": cell.threads,
        "environment": {
            "python": python_version(),
            "packages": package_versions(),
            "deterministic": "where an operation has a deterministic form",
        },
        "code": code_state(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _bare(cell: Cell, keys: Keys, known: Registry, status: str, error: str) -> RunRecord:
    """A record without scores; the first line of an error is its message, the rest its log."""
    message, _, log = error.partition("\n")
    values = {**_common(cell, keys, known, {}), "status": status, "error": message, "log": log}
    return RunRecord(**values).sealed()


def _full(cell: Cell, keys: Keys, known: Registry, values: dict[str, Any]) -> RunRecord:
    common = _common(cell, keys, known, values.pop("resolved"), values.pop("recipe"))
    values["flags"] = (*values["flags"], *_cell_flags(cell))
    return RunRecord(**common, **values, status="ok").sealed()


def _cell_flags(cell: Cell) -> tuple[Flag, ...]:
    """Flags that follow from what was asked."""
    flags = uncounted(cell.request.preset, cell.threat_model, cell.attack)
    for name in _bare_features(cell):
        message = f"'{name}' speaks for the trained weights, not for features h(x) that leave"
        flags = (*flags, Flag(name="beyond_the_guarantee", message=message))
    if cell.public and cell.public.name != cell.dataset.name:
        message = (
            f"public images come from '{cell.public.name}'; where its classes are others, their "
            "labels were drawn at random and class means tell nothing"
        )
        flags = (*flags, Flag(name="foreign_public", message=message))
    return flags


def uncounted(
    preset: str, threat_model: ThreatModel, attack: Resolved | None = None
) -> tuple[Flag, ...]:
    """Why a result does not count, whatever it says: a quick look, or an attacker who is told."""
    flags = (QUICK_FLAG,) if preset == "quick" else ()
    if not threat_model.ranked:
        message = f"the threat model '{threat_model.name}' hands the attack the truth"
        flags = (*flags, Flag(name="unranked", message=message))
    own = attack.config if attack else None
    if isinstance(own, Config) and own.unranked():
        flags = (*flags, Flag(name="unranked", message=own.unranked()))
    return flags


def _bare_features(cell: Cell) -> list[str]:
    """Defenses that guard a training whose features leave unguarded."""
    if cell.main is None or cell.kind is not ReleaseKind.FEATURES:
        return []
    return [defense.name for defense in cell.defenses if defense.spec.trains_alone]


def _ended(
    cell: Cell, keys: Keys, known: Registry, root: Path, status: str, error: str
) -> RunRecord:
    """The record of a cell that ended without a result; it is kept."""
    record = _bare(cell, keys, known, status, error)
    Records(root).save_failure(record, keys.record)
    return record


def check_machine(device: str) -> None:
    """UsageError unless torch is installed and sees the device."""
    if find_spec("torch") is None:
        raise UsageError("An evaluation needs torch, which is not installed; stored ones do not.")
    if not can_compute_on(device):
        raise UsageError(f"torch sees no {device} device here; leave --device at auto.")


def check_stage(name: str | None) -> None:
    """UsageError unless `name` is a stage that can be forced."""
    if name is not None and name not in STAGES:
        raise UsageError(f"'{name}' is not a stage; stages: {', '.join(STAGES)}.")


def dry_run(
    *, owner_key: bytes | None = None, force: str | None = None, **options: Any
) -> dict[str, Any]:
    """What `evaluate` would do: the cell, its channels, and which stages are stored."""
    root = cache_root()
    check_stage(force)
    forced = STAGES[STAGES.index(force) :] if force else ()
    cell = settle(plan(make_request(**options), registry()), root)
    keys = Keys(cell, fingerprint(owner_key))
    foreseen = {
        "cell": f"{'+'.join(d.name for d in cell.defenses)} × {cell.attack.name}",
        "dataset": cell.dataset.name,
        "threat model": cell.threat_model.name,
        "device": f"{cell.device}, {cell.threads} threads",
    }
    if cell.main is None:
        return {**foreseen, "status": "not_applicable", "reason": cell.reason}
    if lacking := lacks(cell, root):
        foreseen["status"] = f"cannot run here: {lacking}"
    beside: dict[str, Any]
    stored = {
        stage: "stored" if _kept(root, stage.partition(" ")[0], key, forced) else "to do"
        for stage, key in _stages(cell, keys).items()
    }
    beside = {"companions": ", ".join(p.attack.name for p in cell.companions) or "none"}
    if cell.members:
        beside = {"attacks": ", ".join(cell.members), "left out": dict(cell.excluded)}
    return {
        **foreseen,
        "release kind": cell.kind.value,
        "channels": ", ".join(sorted(cell.channels)),
        **beside,
        "stages": stored,
    }


def _kept(root: Path, stage: str, key: str, forced: tuple[str, ...]) -> bool:
    return stage not in forced and Store(root).has(stage, key)


def _stages(cell: Cell, keys: Keys) -> dict[str, str]:
    """The keys of what will run, by stage; of an attack that is many, one for each of them."""
    assert cell.main is not None
    stages = keys.of(cell.main)
    if not cell.members:
        return stages
    attacks = {f"attack {name}": keys.attack_of(plan) for name, plan in cell.members.items()}
    shared = {name: key for name, key in stages.items() if name not in ("attack", "judge")}
    return {**shared, **attacks}

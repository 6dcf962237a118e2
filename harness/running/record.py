"""Record: what a cell came to, with all that it was made of, sealed."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.api.release import GUARANTEE
from harness.running.ceiling import CeilingStage
from harness.running.judge import JudgeStage
from harness.running.leakage import Leakage
from harness.running.learn import LearnStage
from harness.running.learning import Learning
from harness.running.load import SPLITS, LoadStage
from harness.running.parties import parties_of
from harness.running.release import ReleaseStage, victim_under
from harness.running.rounds import Rounds
from harness.running.stage import code_identity, plugin_boundary
from harness.running.train import TrainStage
from harness.running.workplace import confinement
from harness.scoring.ceilings import Proof
from harness.scoring.flags import Flag, cell_flags
from harness.store.provenance import code_state, package_versions, plain_config, sha256_of
from harness.store.record import RunRecord, Status, Used

if TYPE_CHECKING:
    from harness.asking.plan import Cell
    from harness.asking.registry import Registry
    from harness.running.run import Run


Resolutions = Mapping[str, Mapping[str, float | int | str]]
"""Parameters as they turned out, by the defense's name."""


def record_key(cell: Cell) -> str:
    """The name under which a cell's record answers the same question again."""
    only = cell.request.only
    judged = [JudgeStage(cell, plan).key for plan in cell.attacks if only != "utility"]
    taught = LearnStage.own(cell) if cell.learns else TrainStage.own(cell)
    return sha256_of(
        {
            "judged": judged,
            "bounded": [stage.key for stage in CeilingStage.every(cell).values()],
            "trained": [stage.key for stage in taught if only != "privacy"],
            "request": cell.request.model_dump(mode="json"),
            **code_identity(__name__, "harness.running.leakage"),
        }
    )


Bounded = tuple[dict[str, Proof], tuple[Flag, ...]]
"""What ceilings say, and the flags of who is above one."""


def sealed(run: Run, learned: Learning, leaked: Leakage, bounded: Bounded) -> RunRecord:
    """The record of a cell that came to its end."""
    cell = run.cell
    splits = run.splits
    resolved = _with_guarantee(
        run, run(Rounds.of(cell)).resolved if cell.streamed else run.release.resolved
    )
    sizes = {name: len(getattr(splits, name)) for name in SPLITS}
    adapted = plain_config(victim_under(run, cell.defenses))
    asked = plain_config(cell.victim)
    changed = {name: value for name, value in adapted.items() if value != asked[name]}
    stored = (LoadStage.of(cell),) if cell.streamed else (LoadStage.of(cell), ReleaseStage.of(cell))
    made = {stage.name: run.identity(stage) for stage in stored}
    common = _common(cell, run.registry, resolved, changed)
    return RunRecord(
        **{**common, "environment": {**common["environment"], "confined": confinement(run.walls)}},
        status="ok",
        splits={**sizes, "targets": run.truth.targets},
        parties=parties_of(run) if cell.request.parties > 1 else None,
        utility=learned.utility,
        measures=dict(learned.measures),
        learners={
            name: Used.of(run.registry, "learners", learner)
            for name, learner in learned.learners.items()
        },
        privacy=dict(leaked.privacy),
        by_image=dict(leaked.by_image),
        companions={name: dict(scores) for name, scores in leaked.companions.items()},
        members=dict(leaked.members),
        identification=leaked.identification,
        findings=dict(leaked.findings),
        diagnostics=dict(leaked.diagnostics),
        ceilings=bounded[0],
        ceiling_plugins={
            name: Used.of(run.registry, "ceilings", ceiling)
            for name, ceiling in cell.ceilings.items()
        },
        flags=(*learned.flags, *leaked.flags, *bounded[1], *cell_flags(cell)),
        verdict=leaked.verdict,
        artifacts={**made, **leaked.artifacts},
        timing=dict(run.timing),
        peak_memory={"owner": peak_megabytes(), **run.peak_memory},
    ).sealed()


def _with_guarantee(run: Run, resolved: Resolutions) -> Resolutions:
    """Resolved parameters, beside what an encoding defense proves of all rounds that left.

    Of several parties, each proves of its own images: what the weakest proves stands.
    """
    encoding, request = run.cell.encoding, run.cell.request
    if encoding is None:
        return resolved
    own = resolved.get(encoding.name, {})
    defense = run.build("defenses", encoding.spec, encoding.config)
    owners = [(len(run.splits.private), own)]
    if request.parties > 1:
        parties = parties_of(run)
        owners = list(
            zip(parties.sizes, parties.resolved or [own] * len(parties.sizes), strict=True)
        )
    with plugin_boundary(encoding.name):
        every = [defense.guarantee(images, request.rounds, its) for images, its in owners]
    proven = max(every, key=lambda each: float(each.get("epsilon", 0.0)))
    if not proven:
        return resolved
    told = {f"{GUARANTEE}{name}": value for name, value in proven.items()}
    return {**resolved, encoding.name: {**own, **told}}


def ended(cell: Cell, known: Registry, status: Status, error: str) -> RunRecord:
    """A record without scores; the first line of an error is its message, the rest its log."""
    message, _, log = error.partition("\n")
    common = _common(cell, known, {}, {})
    return RunRecord(**common, status=status, error=message, log=log).sealed()


def _common(
    cell: Cell,
    known: Registry,
    resolved: Mapping[str, Mapping[str, Any]],
    recipe: Mapping[str, Any],
) -> dict[str, Any]:
    """What every record of this cell says, whatever becomes of it."""
    request = cell.request
    defenses = (Used.of(known, "defenses", d, resolved.get(d.name)) for d in cell.defenses)
    return {
        "request": request,
        "defense": tuple(defenses),
        "attack": Used.of(known, "attacks", cell.attack),
        "dataset": Used.of(known, "datasets", cell.dataset),
        "public": Used.of(known, "datasets", cell.public) if cell.public else None,
        "victim": Used.of(known, "victims", cell.victim, recipe),
        "space": Used.of(known, "spaces", cell.space),
        "threat_model": request.threat_model,
        "release_kind": cell.kind,
        "channels_used": tuple(sorted(cell.channels)),
        "seeds": {"seed": request.seed, "owner_key": cell.owner},
        "device": cell.device,
        "threads": cell.threads,
        "precision": cell.least_precision,
        "environment": {
            "python": platform.python_version(),
            "packages": package_versions(),
            "deterministic": "where an operation has a deterministic form",
        },
        "code": code_state(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)

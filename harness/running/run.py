"""A run: one cell, from the request to the record.

`Run.record` reads top to bottom. What a stage depends on, makes and stores, its own module says.
`STAGES` are their names in order, which `--force` goes by; `steps_of` says what of a cell can be
made apart from the rest, which `--dry-run` and the workers of many cells go by.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from harness.api.assets import AssetFolder
from harness.api.data import Splits
from harness.api.errors import AssetUnavailable, CellFailed, HarnessError, UsageError, nearest
from harness.api.plugins import Progress, silent
from harness.api.precision import multiplies_bfloat16
from harness.api.release import Release
from harness.api.specs import Spec
from harness.api.view import Budget
from harness.asking.plan import Cell, plan
from harness.asking.registry import OWN_DISTRIBUTION, Registry, registry
from harness.asking.request import make_request
from harness.assets.lookup import folder as asset_folder
from harness.assets.lookup import locate
from harness.rng import make_deterministic
from harness.running.attack import AttackStage
from harness.running.ceiling import CeilingStage, ceilings
from harness.running.judge import JudgeStage, null_scores
from harness.running.leakage import Leakage, leakage
from harness.running.learn import LearnStage
from harness.running.learning import Learning, learning
from harness.running.load import LoadStage
from harness.running.parties import joined, joined_sums, with_parties
from harness.running.prepare import PrepareStage
from harness.running.record import ended, record_key, sealed
from harness.running.release import ReleaseStage
from harness.running.rounds import Rounds
from harness.running.samples import JudgedSplits, Space, Truth
from harness.running.stage import Output, Stage, plugin_boundary
from harness.running.train import TrainStage
from harness.store.artifacts import Artifact, Store
from harness.store.paths import cache_root, scratch_folder, sweep
from harness.store.provenance import available_threads, can_compute_on, device_class
from harness.store.record import Records, RunRecord, Status

if TYPE_CHECKING:
    import torch

    from harness.asking.request import Resolved
    from harness.running.workplace import Processes
    from harness.scoring.judgement import NullScores

Out = TypeVar("Out")

STAGES: tuple[type[Stage[Any]], ...] = (
    LoadStage,
    ReleaseStage,
    TrainStage,
    LearnStage,
    PrepareStage,
    AttackStage,
    JudgeStage,
    CeilingStage,
)
"""Stages in their order: forcing one forces all that come after it."""
NAMES = [stage.name for stage in STAGES]

Step = Literal["release", "reference", "train", "learn", "attack", "companions", "record"]
"""A part of a cell that one process does in one go; the last one writes the record."""


FORGIVEN = frozenset({"reference", "learn", "companions"})
"""Steps of several stages that may fail, each by itself: the record says which did."""


def steps_of(cell: Cell) -> dict[Step, tuple[Stage[Any], ...]]:
    """What can be made of a cell apart from the rest, in an order in which it can."""
    only, main = cell.request.only, cell.main
    steps: dict[Step, tuple[Stage[Any], ...]] = {}
    if not cell.streamed:
        steps["release"] = (ReleaseStage.of(cell),)
    if only != "privacy" and cell.learns:
        steps["reference"] = tuple(LearnStage.unprotected(cell))
        steps["learn"] = tuple(LearnStage.own(cell))
    elif only != "privacy":
        steps["reference"] = tuple(TrainStage.unprotected(cell))
        steps["train"] = tuple(TrainStage.own(cell))
    if only != "utility" and main and not cell.members:
        steps["attack"] = (AttackStage(cell, main), JudgeStage(cell, main))
        steps["companions"] = tuple(JudgeStage(cell, each) for each in cell.companions)
    return {} if cell.reason else {step: stages for step, stages in steps.items() if stages}


def stages_of(cell: Cell) -> dict[str, Stage[Any]]:
    """The stages that will run, as `--dry-run` lists them; of many attacks, each of them."""
    steps = steps_of(cell)
    shown: dict[str, Stage[Any]] = {"load": LoadStage.of(cell)}
    for step in ("release", "train", "learn", "attack"):
        for stage in steps.get(step, ()):
            shown.setdefault(stage.label if step == "learn" else stage.name, stage)
    shown |= {f"attack {n}": AttackStage(cell, p) for n, p in cell.members.items()}
    return shown | {stage.label: stage for stage in CeilingStage.every(cell).values()}


class Observer:
    """Is told when stages begin and end. This one ignores it; the command line shows bars."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        """A stage begins and, when the block ends, has ended."""
        yield silent

    def cached(self, name: str) -> None:
        """A stage was there already."""


class Run:
    """One cell under way: what its stages have put out, and what they share.

    `run(stage)` gives a stage's output, from the store or made. Nothing that a run lends to its
    stages decides what they put out, but for what their keys name.
    """

    def __init__(
        self,
        cell: Cell,
        store: Store,
        known: Registry,
        *,
        observer: Observer | None = None,
        secret: bytes | None = None,
        force: str | None = None,
        processes: Processes | None = None,
        guests: bool = True,
    ) -> None:
        self.cell = cell
        self.store = store
        self.registry = known
        self.observer = observer or Observer()
        self.secret = secret
        self.force = force
        self.timing: dict[str, float] = {}
        self.peak_memory: dict[str, float] = {}
        self.walls: list[dict[str, Any]] = []
        """How the processes were confined that had a part in it."""
        self.made: set[str] = set()
        """Keys of what this run made, rather than found."""
        self._outputs: dict[str, Any] = {}
        self._processes = processes
        self._guests = guests
        """Whether strangers' plugins of the owner's side work in processes of their own."""
        self._ending = ExitStack()
        self._entered = 0

    @classmethod
    def open(
        cls,
        options: Mapping[str, Any],
        *,
        cache: Path | None = None,
        observer: Observer | None = None,
        secret: bytes | None = None,
        force: str | None = None,
        apart_from: int | None = None,
    ) -> Run:
        """The run of a cell as asked for; UsageError, AssetUnavailable where it cannot be.

        `apart_from` is a seed whose private and test images are drawn last.
        """
        check_stage(force)
        root, known = cache or cache_root(), registry()
        planned = replace(plan(make_request(**options), known), apart_from=apart_from)
        cell = equip(planned, root, secret)
        return cls(cell, Store(root), known, observer=observer, secret=secret, force=force)

    def answer(self) -> RunRecord | None:
        """The record that answers the same question already, unless a stage is forced."""
        return None if self.force else self.records.answer(record_key(self.cell))

    def result(self) -> RunRecord:
        """The cell's record: that which is there, or a new one."""
        return self.answer() or self.record()

    def record(self) -> RunRecord:
        """The cell's record, which is kept; of a failure of its own too."""
        cell = self.cell
        if cell.reason:
            return self.end("not_applicable", cell.reason)
        check_machine(cell.device)
        try:
            with self:
                return self._evaluated()
        except HarnessError as error:
            if error.status == "fatal":
                raise
            return self.end(error.status, str(error))

    def _evaluated(self) -> RunRecord:
        """One cell, top to bottom."""
        only = self.cell.request.only
        self.expect()
        if not self.cell.streamed:
            _ = self.release  # the splits are loaded; encoded, or trained on inside
        learned = learning(self) if only != "privacy" else Learning()
        leaked = leakage(self) if only != "utility" and self.cell.main else Leakage()
        record = sealed(self, learned, leaked, ceilings(self, leaked))
        self.records.save(record, record_key(self.cell) if leaked.complete else None)
        return record

    def end(self, status: Status, error: str) -> RunRecord:
        """The record of a cell that ended before it had a result; it is kept."""
        record = ended(self.cell, self.registry, status, error)
        self.records.save_failure(record, record_key(self.cell))
        return record

    def advance(self, step: Step) -> None:
        """Make and keep what a step before the record puts out.

        That a companion or a learner fails, the record will tell. CellFailed and PluginError
        where the cell ends there.
        """
        check_machine(self.cell.device)
        forgiven = (CellFailed,) if step in FORGIVEN else ()
        with self:
            for stage in steps_of(self.cell)[step]:
                with suppress(*forgiven):
                    self(stage)

    def __enter__(self) -> Run:
        make_deterministic(self.cell.threads)
        self._entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered -= 1
        if not self._entered:
            self._ending.close()

    def __call__(self, output: Output[Out]) -> Out:
        """An output, made once."""
        if output.key not in self._outputs:
            wanted: Output[Any] = output
            if isinstance(wanted, Rounds) and self.cell.request.parties > 1:
                self._outputs[output.key] = joined(wanted, self)
            else:
                self._outputs[output.key] = wanted.obtain(self)
        found: Out = self._outputs[output.key]
        return found

    def give(self, output: Output[Out], value: Out) -> None:
        """Put something in the place of an output, under a key that names it truly."""
        self._outputs[output.key] = value

    def forget(self) -> None:
        """Let go of all outputs, which may be gigabytes, and of what refers back to this run."""
        self._outputs.clear()
        gc.collect()

    def heed(self, artifact: Artifact) -> None:
        """Note how the process was confined that made it, if one did."""
        if "walls" in artifact.facts:
            self.walls.append(artifact.facts["walls"])

    def has(self, stage: Stage[Any]) -> bool:
        """Whether a stage's output is stored, and is not to be made anew."""
        return not self.forced(stage.name) and self.store.has(stage.name, stage.key)

    def identity(self, stage: Stage[Any]) -> dict[str, str | int]:
        """What a record says of a stage's output."""
        return self.store.identity(stage.name, stage.key)

    def forced(self, name: str) -> bool:
        """Whether a stage has to run although its output is stored."""
        return self.force is not None and NAMES.index(name) >= NAMES.index(self.force)

    def expect(self) -> None:
        """Start the first process now, so that importing torch costs nobody a wait."""
        cell, only = self.cell, self.cell.request.only
        stages: list[Stage[Any]] = []
        if only != "privacy" and cell.learns:
            stages += [*LearnStage.own(cell), *LearnStage.unprotected(cell)]
        if only != "utility":
            stages += [AttackStage(cell, plan) for plan in cell.attacks]
        if wanted := len({stage.key for stage in stages if not self.has(stage)}):
            self.processes.expected = wanted
            self.processes.warm()

    @property
    def processes(self) -> Processes:
        """The processes of attacks; what killed runs left is swept away first."""
        if self._processes is None:
            from harness.running.workplace import workplaces
            from harness.sandbox.process import Workers

            for root in (self.store.root, workplaces()):
                sweep(root)
            scratch = self._ending.enter_context(scratch_folder(workplaces(), "run"))
            workers = Workers(scratch, self.cell.threads)
            self._ending.callback(workers.close)
            self._processes = workers
        return self._processes

    @cached_property
    def splits(self) -> Splits:
        """Private, public and test samples in the space."""
        return self(Space.of(self.cell))

    @cached_property
    def truth(self) -> JudgedSplits:
        """The splits as the judge has them."""
        return self(Truth.of(self.cell))

    @cached_property
    def release(self) -> Release:
        """What leaves in this cell."""
        return self(ReleaseStage.of(self.cell))

    @cached_property
    def nulls(self) -> NullScores:
        """What guesses without the release score, told nothing of the truth."""
        from harness.scoring.judgement import NO_HELP

        return null_scores(self, NO_HELP)

    @property
    def records(self) -> Records:
        """Where records are kept."""
        return Records(self.store.root)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        import torch

        return torch.device(self.cell.device)

    @property
    def budget(self) -> Budget:
        """The limits of one attack."""
        request = self.cell.request
        return Budget(request.time_limit, request.megabytes, self.cell.threads)

    @cached_property
    def assets(self) -> AssetFolder:
        """Verified assets of all that this cell uses and has."""
        cell = self.cell
        specs = [cell.dataset.spec, cell.space.spec, *([cell.public.spec] if cell.public else [])]
        specs += [m for m in cell.metrics if m.name not in cell.unavailable]
        return asset_folder([a for spec in specs for a in spec.assets], self.store.root)

    def build(self, kind: str, spec: Spec, argument: Any) -> Any:
        """A plugin at work; of several parties that release sums, theirs together."""
        build = partial(self.registry.build, kind, spec.name, argument)
        if self._guests and self.registry.origin(kind, spec.name).distribution != OWN_DISTRIBUTION:
            from harness.running.guests import guest, is_guest

            if is_guest(kind, spec):
                build = partial(guest, self, kind, spec, argument)
        sums = self.cell.sums
        with plugin_boundary(spec.name):
            if sums and spec is sums.spec and self.cell.request.parties > 1:
                return joined_sums(build, self)
            return build()

    @contextmanager
    def watched(self, label: str) -> Iterator[Progress]:
        """Show and time a piece of work; what is done in several parts is timed as one."""
        with self.observer.stage(label) as progress:
            started = time.perf_counter()
            yield progress
            taken = time.perf_counter() - started
            self.timing[label] = round(self.timing.get(label, 0.0) + taken, 3)


def check_stage(name: str | None) -> None:
    """UsageError unless `name` is a stage that can be forced."""
    if name is not None and name not in NAMES:
        raise UsageError(f"'{name}' is not a stage.{nearest(name, NAMES)}")


def dry_run(
    *, owner_key: bytes | None = None, force: str | None = None, **options: Any
) -> dict[str, Any]:
    """What `evaluate` would do: the cell, its channels, and which stages are stored."""
    root, known = cache_root(), registry()
    check_stage(force)
    cell = settle(plan(make_request(**options), known), root, owner_key)
    stack = "+".join(defense.name for defense in cell.defenses)
    foreseen = {
        "cell": stack if cell.request.only == "utility" else f"{stack} × {cell.attack.name}",
        "dataset": cell.dataset.name,
        "threat model": cell.threat_model.name,
        "device": f"{cell.device}, {cell.threads} threads",
    }
    if cell.reason:
        return {**foreseen, "status": "not_applicable", "reason": cell.reason}
    if lacking := lacks(cell, root):
        foreseen["status"] = f"cannot run here: {lacking}"
    attacks: dict[str, Any] = {}
    if cell.members:
        attacks = {"attacks": ", ".join(cell.members), "left out": dict(cell.excluded)}
    elif cell.main:
        attacks = {"companions": ", ".join(p.attack.name for p in cell.companions) or "none"}
    if attacks:
        attacks = {"channels": ", ".join(sorted(cell.channels)), **attacks}
    run = Run(cell, Store(root), known, force=force)
    stages = {n: "stored" if run.has(s) else "to do" for n, s in stages_of(cell).items()}
    return {**foreseen, "release kind": cell.kind.value, **attacks, "stages": stages}


def equip(cell: Cell, root: Path, secret: bytes | None = None) -> Cell:
    """Fix what depends on this machine: device, threads, and which assets are here.

    `secret` is the owner's key, where there is one. AssetUnavailable where what the cell cannot do
    without is not here.
    """
    if lacking := lacks(cell, root):
        raise AssetUnavailable(lacking)
    return settle(cell, root, secret)


def lacks(cell: Cell, root: Path) -> str:
    """What a cell cannot do without and is not here, and how to get it; empty if nothing."""
    try:
        for resolved in filter(None, (cell.dataset, cell.public, cell.space)):
            for asset in resolved.spec.assets:
                locate(asset, root)
    except AssetUnavailable as error:
        return str(error)
    return ""


def settle(cell: Cell, root: Path, secret: bytes | None = None) -> Cell:
    """As `equip`, of a cell that need not run: its data may be missing."""
    fingerprints = {
        resolved.written: _fingerprint_of(resolved)
        for resolved in filter(None, (cell.dataset, cell.public))
        if resolved.spec.fingerprint
    }
    unavailable = dict(cell.unavailable)
    for spec in cell.metrics:
        try:
            for asset in spec.assets:
                locate(asset, root)
        except AssetUnavailable as error:
            unavailable[spec.name] = str(error)
    settled = replace(
        cell,
        device=device_class(cell.request.device),
        threads=cell.request.threads or available_threads(),
        reduces=multiplies_bfloat16(device_class(cell.request.device)),
        unavailable=unavailable,
        fingerprints=fingerprints,
        owner=fingerprint(secret),
    )
    return with_parties(settled) if settled.request.parties > 1 else settled


def fingerprint(secret: bytes | None) -> str:
    """What a record says of the owner's key: never the key."""
    if secret is None:
        return "derived from the seed"
    return f"sha256:{hashlib.sha256(b'owner key' + secret).hexdigest()[:16]}"


def _fingerprint_of(resolved: Resolved) -> str:
    """What names a dataset's data where no asset does."""
    module, _, function = resolved.spec.fingerprint.partition(":")
    found: str = getattr(import_module(module), function)(resolved.config)
    return found


def check_machine(device: str) -> None:
    """UsageError unless torch is installed and sees the device."""
    if find_spec("torch") is None:
        raise UsageError("An evaluation needs torch, which is not installed; stored ones do not.")
    if not can_compute_on(device):
        raise UsageError(f"torch sees no {device} device here; leave --device at auto.")

"""One cell in this process: every stage that is not stored yet, then the record.

Attacks run in processes of their own; everything that holds the truth stays here.
"""

from __future__ import annotations

import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harness.api import (
    AssetFolder,
    Budget,
    CellFailed,
    Channel,
    HarnessError,
    Metric,
    MetricSpec,
    Reconstruction,
    Release,
    ReleaseKind,
    Scene,
    Splits,
)
from harness.api.knowledge import PRIOR_CHANNELS
from harness.assets import folder as asset_folder
from harness.checks import Flag, check_judgement
from harness.engines.codec import (
    pack_attacked,
    pack_judgement,
    pack_release,
    pack_splits,
    unpack_attacked,
    unpack_release,
    unpack_splits,
)
from harness.engines.observer import Observer
from harness.engines.pictures import draw_gallery
from harness.keys import STAGES, Keys, plugin_identity, sha256_of
from harness.plan import AttackPlan, Cell
from harness.record import RunRecord
from harness.registry import Registry, load_factory
from harness.rng import KeyedStream, board_key, derive, owner_key
from harness.scoring.identification import identification
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import verdict
from harness.selector import Resolved
from harness.stages.attack import attack, learn
from harness.stages.judge import Judgement, NullScores, judge, score_nulls
from harness.stages.load import SplitSizes, load
from harness.stages.release import ReleaseProtocol, release
from harness.stages.stack import Stack
from harness.stages.train import state, train
from harness.stages.utility import Utility, utility
from harness.stages.view import candidates, view
from harness.store import Artifact, Store
from harness.store.paths import disk_errors, scratch_folder
from harness.store.records import Records
from harness.worker.folder import Frame, Named
from harness.worker.process import Workers


@dataclass
class Run:
    """One cell under way: its inputs, and what its stages gave so far."""

    cell: Cell
    keys: Keys
    store: Store
    registry: Registry
    observer: Observer
    workers: Workers
    secret: bytes | None = None
    force: str | None = None
    timing: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, float] = field(default_factory=dict)

    # -- what every stage shares ---------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device(self.cell.device)

    @cached_property
    def board(self) -> KeyedStream:
        """Public randomness."""
        return KeyedStream(board_key(self.cell.request.seed))

    @cached_property
    def owner(self) -> KeyedStream:
        """The owner's randomness."""
        return KeyedStream(owner_key(self.cell.request.seed, self.secret))

    def _forced(self, stage: str) -> bool:
        return self.force is not None and STAGES.index(stage) >= STAGES.index(self.force)

    def _build(self, kind: str, resolved: Resolved) -> Any:
        origin = self.registry.origin(kind, resolved.name)
        factory = load_factory(resolved.spec, origin)
        with plugin_boundary(resolved.name):
            return factory(resolved.config)

    @cached_property
    def assets(self) -> AssetFolder:
        """Verified assets of all that this cell uses and has."""
        specs = [self.cell.dataset.spec, self.cell.space.spec]
        specs += [self.cell.public.spec] if self.cell.public else []
        specs += [m for m in self.cell.metrics if m.name not in self.cell.unavailable]
        assets = [asset for spec in specs for asset in spec.assets]
        return asset_folder(assets, self.store.root)

    def _obtain(self, stage: str, key: str, make: Callable[[], Artifact], label: str) -> Artifact:
        """A stage's artifact: from the store, or made, timed and stored."""

        def timed() -> Artifact:
            with self.observer.stage(label) as progress:
                self._progress = progress
                started = time.perf_counter()
                made = make()
                self.timing[label] = time.perf_counter() - started
                self.peak_memory[label] = _peak_megabytes()
            return made

        artifact, cached = self.store.obtain(stage, key, timed, force=self._forced(stage))
        if cached:
            self.observer.cached(label)
        return artifact

    # -- the owner's side ----------------------------------------------------------------------

    @cached_property
    def splits(self) -> Splits:
        """Private, public and test images."""
        return unpack_splits(self._obtain("load", self.keys.load, self._load, "load"))

    def _load(self) -> Artifact:
        request = self.cell.request
        sizes = SplitSizes(
            private=request.sizes.private,
            public=request.sizes.public,
            test=request.sizes.test,
            at_most=frozenset(
                name
                for name in ("private", "public", "test")
                if getattr(request, f"{name}_size") is None
            ),
        )
        collection = self._collection(self.cell.dataset)
        public = self._collection(self.cell.public) if self.cell.public else None
        return pack_splits(load(collection, public, sizes, self.board.stream(stage="load")))

    def _collection(self, resolved: Resolved) -> Any:
        dataset = self._build("datasets", resolved)
        with plugin_boundary(resolved.name):
            return dataset.load(self.assets)

    def stack(self, defenses: tuple[Resolved, ...]) -> Stack:
        """The defenses, built."""
        built = [(d.spec.stage, d.name, self._build("defenses", d)) for d in defenses]
        named = {
            stage: tuple((n, d) for s, n, d in built if s == stage)
            for stage in ("encoding", "training", "gradient")
        }
        encoding = named["encoding"][0] if named["encoding"] else None
        return Stack(encoding, named["training"], named["gradient"])

    def release_of(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Release:
        """What a stack releases."""
        key = self.keys.release_of(defenses, kind)
        label = "release" if defenses == self.cell.defenses else "release unprotected"
        return unpack_release(
            self._obtain("release", key, lambda: self._release(defenses, kind), label)
        )

    def _release(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Artifact:
        request = self.cell.request
        splits = self.splits
        protocol = ReleaseProtocol(
            rounds=request.rounds,
            batch_size=request.batch_size,
            batches=-(-self.targets // request.batch_size),
            victim_epochs=request.victim_epochs,
            bn_mode=request.bn_mode,
            embed=self._embed,
        )
        with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
            made = release(
                splits,
                self.stack(defenses),
                kind,
                self._build("victims", self.cell.victim),
                protocol,
                owner=self.owner,
                board=self.board.stream(stage="release"),
                device=self.device,
                progress=self._progress,
            )
        return pack_release(made)

    @cached_property
    def _embed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        space = self._build("spaces", self.cell.space)
        return lambda images: space.embed(images, self.splits.scale, self.assets)

    @cached_property
    def release(self) -> Release:
        """What this cell's owner lets out."""
        return self.release_of(self.cell.defenses, self.cell.kind)

    @property
    def targets(self) -> int:
        """How many private images are judged."""
        private = len(self.splits.private)
        return min(self.cell.request.targets or private, private)

    def trained(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Utility:
        """Accuracy of the victim trained under a stack."""
        label = "train" if defenses == self.cell.defenses else "train unprotected"
        key = self.keys.train_of(defenses, kind)
        artifact = self._obtain("train", key, lambda: self._train(defenses, kind), label)
        return Utility.model_validate(artifact.facts["utility"])

    def _train(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> Artifact:
        stack = self.stack(defenses)
        given = self.release_of(defenses, kind)
        with plugin_boundary(self.cell.victim.name):
            model = train(
                given,
                self._build("victims", self.cell.victim),
                len(self.splits.classes),
                self._training_stream(stack),
                self.device,
                stack=stack,
                progress=self._progress,
            )
            measured = utility(
                model,
                self.splits,
                stack,
                self.owner.stream(stage="utility"),
                self.device,
                embed=self._embed,
            )
        return Artifact(state(model), {"utility": measured.model_dump(mode="json")})

    def _training_stream(self, stack: Stack) -> KeyedStream:
        """Public, but secret where a defense draws its own noise from it."""
        secret = bool(stack.training or stack.gradient)
        return (self.owner if secret else self.board).stream(stage="train")

    def utility(self) -> Utility:
        """Accuracy of the cell beside that of the same victim on unprotected images."""
        plain = self.trained((), ReleaseKind.ENCODINGS)
        own = self.trained(self.cell.defenses, self.cell.trained_kind)
        return own.model_copy(
            update={"reference_accuracy": plain.accuracy, "reference_interval": plain.interval}
        )

    # -- the attacker's side -------------------------------------------------------------------

    def _budget(self) -> Budget:
        request = self.cell.request
        return Budget(request.time_limit, request.megabytes, self.cell.threads)

    def _frame(self, plan: AttackPlan, granted: frozenset[Channel], purpose: str) -> Frame:
        splits, request, budget = self.splits, self.cell.request, self._budget()
        key = derive(self.board.key, {"attack": plan.attack.name, "purpose": purpose})
        return Frame(
            attack=_named(plan.attack),
            granted=tuple(sorted(plan.channels)),
            threat_model=request.threat_model,
            mean=splits.scale.mean,
            std=splits.scale.std,
            shape=splits.shape,
            input_shape=self._input_shape(granted),
            classes=len(splits.classes),
            n_private=len(splits.private) if Channel.N_PRIVATE in granted else None,
            encoder=self._encoder() if Channel.ENCODER in granted else None,
            victim=_named(self.cell.victim) if _needs_network(granted) else None,
            key=key.hex(),
            device=self.cell.device,
            seconds=budget.seconds,
            megabytes=budget.megabytes,
            threads=budget.threads,
        )

    def _input_shape(self, granted: frozenset[Channel]) -> tuple[int, ...]:
        from harness.stages.train import input_shape

        return input_shape(self.release) if _needs_network(granted) else ()

    def _encoder(self) -> Named | None:
        """The encoding defense with its parameters as they turned out."""
        encoding = self.cell.encoding
        if encoding is None:
            return None
        resolved = self.release.resolved.get(encoding.name, {})
        config = encoding.config.model_dump(mode="json") | dict(resolved)
        return Named(name=encoding.name, config=config)

    def attacked(self, plan: AttackPlan) -> tuple[Reconstruction, dict[str, Any]]:
        """What one attack brings back, and the facts stored with it."""
        name = plan.attack.name
        artifact = self._obtain(
            "attack", self.keys.attack_of(plan), lambda: self._attack(plan), f"attack {name}"
        )
        return unpack_attacked(artifact), dict(artifact.facts)

    def _attack(self, plan: AttackPlan) -> Artifact:
        label = f"attack {plan.attack.name}"
        prior = self._prepare_key(plan)
        progress = self._progress
        with self.workers.take() as process, self._folders(label) as (front, back, out):
            prepared = self.store.obtain(
                "prepare",
                prior,
                lambda: self._learn(process, plan, front, out, progress),
                force=self._forced("prepare"),
            )[0]
            learned = out / "learned.safetensors"
            with disk_errors(self.store.root):
                shutil.copyfile(self.store.tensors_path("prepare", prior), learned)
            view(
                back,
                self._frame(plan, plan.channels, "reconstruct"),
                plan.channels,
                self.release,
                self.splits,
                self.board,
            )
            done = attack(process, back, out, learned, self._budget(), progress)
        peak = max(done.spent.megabytes, prepared.facts.get("peak_memory", 0.0))
        return pack_attacked(done.reconstruction, {label: peak})

    def _learn(
        self, process: Any, plan: AttackPlan, folder: Path, out: Path, progress: Any
    ) -> Artifact:
        prior = plan.channels & PRIOR_CHANNELS
        frame = self._frame(plan, prior, "prepare")
        view(folder, frame, prior, self.release, self.splits, self.board)
        learned = learn(process, folder, out, self._budget(), progress)
        return Artifact(learned.tensors, {"peak_memory": learned.spent.megabytes})

    def _prepare_key(self, plan: AttackPlan) -> str:
        """What preparation depends on: the law, never the release."""
        encoder = self._encoder()
        identity = {
            "stage": "prepare",
            "splits": self.keys.load,
            "attack": plugin_identity(plan.attack),
            "channels": sorted(plan.channels),
            "encoder": encoder.model_dump(mode="json") if encoder else None,
            "defense": plugin_identity(self.cell.encoding) if self.cell.encoding else None,
            "network": self.keys.release if _needs_network(plan.channels) else None,
            "space": plugin_identity(self.cell.space),
            "seed": self.cell.request.seed,
            "hardware": [self.cell.device, self.cell.threads],
        }
        return sha256_of(identity)

    @contextmanager
    def _folders(self, label: str) -> Iterator[tuple[Path, Path, Path]]:
        """Folders for the view before the release, the view of it, and what comes out."""
        with scratch_folder(self.store.root, label.replace(" ", "-")) as base:
            folders = (base / "before", base / "view", base / "out")
            for folder in folders:
                folder.mkdir()
            yield folders

    # -- the judge -----------------------------------------------------------------------------

    @cached_property
    def metrics(self) -> Mapping[str, tuple[MetricSpec, Metric | str]]:
        """Metrics ready to score, or why they cannot."""
        decoys = self.splits.test.unit().images[: len(self.splits.private)]
        scene = Scene(self.splits.scale, self.device, self.assets, decoys)
        return {spec.name: (spec, self._metric(spec, scene)) for spec in self.cell.metrics}

    def _metric(self, spec: MetricSpec, scene: Scene) -> Metric | str:
        if spec.name in self.cell.unavailable:
            return self.cell.unavailable[spec.name]
        factory = load_factory(spec, self.registry.origin("metrics", spec.name))
        with plugin_boundary(spec.name):
            metric: Metric = factory(scene)
        return metric

    @cached_property
    def _nulls(self) -> NullScores:
        stream = self.board.stream(stage="judge")
        return score_nulls(
            self.splits,
            self.targets,
            metrics=self.metrics,
            stream=stream,
            device=self.device,
            signs_hidden=self.cell.hides_signs,
        )

    def judged(self, plan: AttackPlan) -> Artifact:
        """One attack's scores: per image, and summed up in facts."""
        name = plan.attack.name
        key = self.keys.judge_of(plan)
        return self._obtain("judge", key, lambda: self._judge(plan), f"judge {name}")

    def _judge(self, plan: AttackPlan) -> Artifact:
        found, _ = self.attacked(plan)
        with plugin_boundary("judge"):
            judgement = judge(
                found,
                self.splits,
                self.targets,
                sources=self._primary_sources(),
                metrics=self.metrics,
                stream=self.board.stream(stage="judge"),
                device=self.device,
                nulls=self._nulls,
                attack=plan.attack.name,
                signs_hidden=self.cell.hides_signs,
            )
        facts = _judgement_facts(judgement) | self._identified(found, plan)
        return pack_judgement(judgement, facts)

    def _identified(self, found: Reconstruction, plan: AttackPlan) -> dict[str, Any]:
        """How well the attack's candidate scores pick the true images, if it gave any."""
        scores = found.claims.get("candidate_scores")
        if scores is None:
            return {}
        truth = candidates(self.splits, self.board).truth[: self.targets]
        stream = self.board.stream(stage="judge", what="identification")
        result = identification(scores[: self.targets], truth, stream, plan.attack.name)
        return {"identification": result.model_dump(mode="json")}

    # -- the record ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start what takes a while and will be needed: the first attack's process."""
        main = self.cell.main
        if self._wants("privacy") and main and not self._stored(main):
            self.workers.warm()

    def _wants(self, half: str) -> bool:
        return self.cell.request.only in (None, half)

    def _stored(self, plan: AttackPlan) -> bool:
        return not self.force and self.store.has("attack", self.keys.attack_of(plan))

    def finish(self, seal: Callable[[dict[str, Any]], RunRecord]) -> RunRecord:
        """Run every stage that is wanted, keep the record and its gallery."""
        values: dict[str, Any] = {"flags": (), "artifacts": {}}
        if self._wants("utility"):
            values["utility"] = self.utility()
        if self._wants("privacy") and self.cell.main:
            values |= self._privacy(self.cell.main)
        values |= {
            "resolved": self.release.resolved,
            "splits": {n: len(getattr(self.splits, n)) for n in ("private", "public", "test")},
            "timing": {k: round(v, 3) for k, v in self.timing.items()},
            "peak_memory": self.peak_memory,
        }
        values["splits"]["targets"] = self.targets
        values["artifacts"] |= {
            "load": self.store.identity("load", self.keys.load),
            "release": self.store.identity("release", self.keys.release),
        }
        record = seal(values)
        with self.observer.stage("picture"):
            draw_gallery(self.store.root, record)
        Records(self.store.root).save(record, self.keys.record)
        return record

    def _privacy(self, main: AttackPlan) -> dict[str, Any]:
        judged = self.judged(main)
        found, facts = self.attacked(main)
        companions, flags = self._companions()
        self.peak_memory |= facts["peak_memory"]
        return {
            "privacy": privacy_of(judged),
            "companions": companions,
            "diagnostics": dict(found.diagnostics),
            "flags": (*map(Flag.model_validate, judged.facts["flags"]), *flags),
            "verdict": judged.facts["verdict"],
            "identification": judged.facts.get("identification"),
            "artifacts": {
                "attack": self.store.identity("attack", self.keys.attack_of(main)),
                "judge": self.store.identity("judge", self.keys.judge_of(main)),
            },
        }

    def _companions(self) -> tuple[dict[str, dict[str, MetricScore]], list[Flag]]:
        """The cheap attacks that run in every cell; one that fails is a flag, not a failure."""
        scores, flags = {}, []
        for plan in self.cell.companions:
            try:
                scores[plan.attack.name] = privacy_of(self.judged(plan))
            except CellFailed as error:
                reason = str(error).partition("\n")[0]
                flags.append(Flag(name=f"companion_failed:{plan.attack.name}", message=reason))
        return scores, flags

    def _primary_sources(self) -> Any:
        sources = self.release.secrets.get("sources")
        return None if sources is None else sources[..., 0].flatten()


def run(
    cell: Cell,
    keys: Keys,
    store: Store,
    known: Registry,
    observer: Observer,
    seal: Callable[[dict[str, Any]], RunRecord],
    *,
    secret: bytes | None,
    force: str | None,
) -> RunRecord:
    """Evaluate one cell. `seal` makes a record of the values that came out."""
    torch.set_num_threads(cell.threads)
    with scratch_folder(store.root, "run") as scratch:
        workers = Workers(scratch, cell.threads)
        try:
            under_way = Run(cell, keys, store, known, observer, workers, secret=secret, force=force)
            under_way.start()
            return under_way.finish(seal)
        finally:
            workers.close()


def _judgement_facts(judgement: Judgement) -> dict[str, Any]:
    privacy = {n: s.model_dump(mode="json") for n, s in judgement.privacy.items()}
    return {
        "privacy": privacy,
        "flags": [flag.model_dump() for flag in check_judgement(judgement)],
        "verdict": verdict(judgement.privacy),
        "notes": list(judgement.notes),
    }


def privacy_of(artifact: Artifact) -> dict[str, MetricScore]:
    """The scores in a stored judgement."""
    stored = artifact.facts["privacy"]
    return {name: MetricScore.model_validate(values) for name, values in stored.items()}


def _needs_network(channels: frozenset[Channel]) -> bool:
    return bool(channels & {Channel.MODEL, Channel.FEATURE_ENCODER})


def _named(resolved: Resolved) -> Named:
    return Named(name=resolved.name, config=resolved.config.model_dump(mode="json"))


@contextmanager
def plugin_boundary(name: str) -> Iterator[None]:
    """Whatever a plugin raises on the owner's side becomes a failed cell that names it."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        where = _last_frame(error)
        raise CellFailed(f"'{name}' raised {type(error).__name__}: {error} ({where})") from error


def _last_frame(error: BaseException) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)

"""The attacker's side of a run: views are handed to processes that hold nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.api import Budget, Channel, Progress
from harness.api.knowledge import PRIOR_CHANNELS
from harness.engines.codec import pack_attacked
from harness.engines.context import Context
from harness.engines.owner import Owner
from harness.keys import plugin_identity, sha256_of
from harness.plan import AttackPlan
from harness.rng import derive
from harness.selector import Resolved
from harness.stages.attack import attack, learn
from harness.stages.train import input_shape
from harness.stages.view import view
from harness.store import Artifact
from harness.store.paths import disk_errors, scratch_folder
from harness.worker.folder import Frame, Named
from harness.worker.process import AttackProcess, Workers

NETWORKS = frozenset({Channel.MODEL, Channel.FEATURE_ENCODER})


@dataclass(frozen=True)
class Desk:
    """Folders of one attack: the view before the release, the view of it, what comes out."""

    before: Path
    view: Path
    out: Path


class Attacker:
    """Who gets the release."""

    def __init__(self, context: Context, owner: Owner, workers: Workers) -> None:
        self.context = context
        self.cell = context.cell
        self.owner = owner
        self.workers = workers
        self._attacked: dict[str, Artifact] = {}

    @property
    def budget(self) -> Budget:
        """The limits of one attack."""
        request = self.cell.request
        return Budget(request.time_limit, request.megabytes, self.cell.threads)

    def stored(self, plan: AttackPlan) -> bool:
        """Whether an attack needs no process, its outcome being there."""
        key = self.context.keys.attack_of(plan)
        return not self.context.force and self.context.store.has("attack", key)

    def attacked(self, plan: AttackPlan) -> Artifact:
        """What one attack brings back."""
        key = self.context.keys.attack_of(plan)
        if key not in self._attacked:
            self._attacked[key] = self.context.obtain(
                "attack",
                key,
                f"attack {plan.attack.name}",
                lambda progress: self._attack(plan, progress),
                lambda: (self.owner.splits, self.owner.release),
            )
        return self._attacked[key]

    def _attack(self, plan: AttackPlan, progress: Progress) -> Artifact:
        label = f"attack {plan.attack.name}"
        with self.workers.take() as process, self._desk(label) as desk:
            prepared, peak = self._prepared(process, plan, desk, progress)
            frame = self._frame(plan, plan.channels, "reconstruct")
            self._hand_over(desk.view, frame, plan.channels)
            done = attack(process, desk.view, desk.out, prepared, self.budget, progress)
        return pack_attacked(done.reconstruction, {label: max(done.spent.megabytes, peak)})

    def _prepared(
        self, process: AttackProcess, plan: AttackPlan, desk: Desk, progress: Progress
    ) -> tuple[Path, float]:
        """What the attack learns before the release, as a copy; and the memory that took."""
        key = self._prepare_key(plan)
        learned, _ = self.context.store.obtain(
            "prepare",
            key,
            lambda: self._learn(process, plan, desk, progress),
            force=self.context.forced("prepare"),
        )
        copy = desk.out / "learned.safetensors"
        with disk_errors(self.context.store.root):
            shutil.copyfile(self.context.store.tensors_path("prepare", key), copy)
        return copy, float(learned.facts["peak_memory"])

    def _learn(
        self, process: AttackProcess, plan: AttackPlan, desk: Desk, progress: Progress
    ) -> Artifact:
        prior = plan.channels & PRIOR_CHANNELS
        self._hand_over(desk.before, self._frame(plan, prior, "prepare"), prior)
        learned = learn(process, desk.before, desk.out, self.budget, progress)
        return Artifact(learned.tensors, {"peak_memory": learned.spent.megabytes})

    def _hand_over(self, folder: Path, frame: Frame, channels: frozenset[Channel]) -> None:
        owner = self.owner
        with disk_errors(folder):
            view(folder, frame, channels, owner.release, owner.splits, self.context.board)

    @contextmanager
    def _desk(self, label: str) -> Iterator[Desk]:
        root = self.context.store.root
        with scratch_folder(root, label.replace(" ", "-")) as base:
            desk = Desk(base / "before", base / "view", base / "out")
            for folder in (desk.before, desk.view, desk.out):
                folder.mkdir()
            yield desk

    def _prepare_key(self, plan: AttackPlan) -> str:
        """What preparation depends on: the law of the defense, never the release."""
        encoding, encoder = self.cell.encoding, self._encoder()
        return sha256_of(
            {
                "stage": "prepare",
                "splits": self.context.keys.load,
                "attack": plugin_identity(plan.attack),
                "channels": sorted(plan.channels),
                "protocol": self.cell.protocol,
                "encoder": encoder.model_dump(mode="json") if encoder else None,
                "defense": plugin_identity(encoding) if encoding else None,
                "network": self.context.keys.release if plan.channels & NETWORKS else None,
                "space": plugin_identity(self.cell.space),
                "seed": self.cell.request.seed,
                "hardware": [self.cell.device, self.cell.threads],
            }
        )

    def _encoder(self) -> Named | None:
        """The encoding defense with its parameters as they turned out."""
        encoding = self.cell.encoding
        if encoding is None:
            return None
        resolved = self.owner.release.resolved.get(encoding.name, {})
        return _named(encoding, dict(resolved))

    def _frame(self, plan: AttackPlan, present: frozenset[Channel], purpose: str) -> Frame:
        splits, budget = self.owner.splits, self.budget
        axes: dict[str, str | int] = {"attack": plan.attack.name, "purpose": purpose}
        network = bool(present & NETWORKS)
        return Frame(
            attack=_named(plan.attack),
            granted=tuple(sorted(plan.channels)),
            threat_model=self.cell.threat_model.name,
            mean=splits.scale.mean,
            std=splits.scale.std,
            shape=splits.shape,
            input_shape=input_shape(self.owner.release) if network else (),
            classes=len(splits.classes),
            n_private=len(splits.private) if Channel.N_PRIVATE in present else None,
            encoder=self._encoder() if Channel.ENCODER in present else None,
            victim=_named(self.cell.victim) if network else None,
            protocol=self.cell.protocol,
            key=derive(self.context.board.key, axes).hex(),
            device=self.cell.device,
            seconds=budget.seconds,
            megabytes=budget.megabytes,
            threads=budget.threads,
        )


def _named(resolved: Resolved, parameters: dict[str, float | int | str] | None = None) -> Named:
    config = resolved.config.model_dump(mode="json") | (parameters or {})
    return Named(name=resolved.name, config=config)

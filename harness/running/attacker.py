"""The attacker's side of a run: views are handed to processes that hold nothing else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.api import Budget, Channel, Preparation, Progress
from harness.api.knowledge import NETWORKS, PRIOR_CHANNELS
from harness.asking.plan import AttackPlan
from harness.asking.selector import Resolved
from harness.rng import derive
from harness.running.attack import Learned, attack, learn, make_shared
from harness.running.codec import pack_attacked
from harness.running.context import Context
from harness.running.keys import preparation_arguments
from harness.running.owner import Owner
from harness.running.train import input_shape
from harness.running.view import view
from harness.sandbox.jobs import SHARED, Frame, Named
from harness.sandbox.process import AttackProcess, Spent, Workers
from harness.store import Artifact
from harness.store.paths import disk_errors, scratch_folder


@dataclass(frozen=True)
class Desk:
    """Folders of one attack."""

    base: Path

    @property
    def before(self) -> Path:
        """The view before the release."""
        return self.base / "before"

    @property
    def view(self) -> Path:
        """The view of it."""
        return self.base / "view"

    @property
    def out(self) -> Path:
        """What comes out."""
        return self.base / "out"


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
        with self.workers.take() as process, desk(label) as place:
            before = self._share(process, plan, place)
            prepared, learning = self._prepared(process, plan, place, before)
            frame = self._frame(plan, plan.channels, "reconstruct")
            self._hand_over(place.view, frame, plan.channels)
            done = attack(
                process,
                place.view,
                place.out,
                prepared,
                self.budget,
                progress,
                spent=learning.seconds,
            )
        peak = max(done.spent.megabytes, learning.megabytes)
        return pack_attacked(done.reconstruction, {label: peak}, done.spent.seconds)

    def _share(self, process: AttackProcess, plan: AttackPlan, place: Desk) -> Spent:
        """Bring what the attack shares with others to both of its desks; what that took here."""
        taken = Spent(0.0, 0.0)
        for made in plan.preparations:
            key = self._key_of(made, plan)
            label = f"prepare {made.name}"
            before = self.context.timing.pop(label, None)
            found = self.context.obtain(
                "prepare",
                key,
                label,
                partial(self._make_shared, process, plan, made, place),
                lambda: None,
            )
            for folder in (place.before, place.view):
                self._copy(key, folder / SHARED / f"{made.name}.safetensors")
            seconds = taken.seconds + self.context.timing.get(label, 0.0)
            if before is not None:  # another attack's making of it is this run's time all the same
                self.context.timing.setdefault(label, before)
            taken = Spent(seconds, max(taken.megabytes, float(found.facts["peak_memory"])))
        return taken

    def made(self, plan: AttackPlan) -> dict[str, dict[str, Any]]:
        """What the attack's preparations were, by content, for the record."""
        store = self.context.store
        keys = {made.name: self._key_of(made, plan) for made in plan.preparations}
        return {
            f"prepare {name}": store.identity("prepare", key)
            for name, key in keys.items()
            if store.has("prepare", key)
        }

    def seconds(self, plan: AttackPlan) -> dict[str, float]:
        """What the attack took, and what it learned before, whoever made it and when."""
        encoder = self._encoder()
        told = encoder.model_dump(mode="json") if encoder else None
        name, store = plan.attack.name, self.context.store
        keys = {
            f"attack {name}": ("attack", self.context.keys.attack_of(plan)),
            f"prepare {name}": ("prepare", self.context.keys.prepare_of(plan, told)),
        }
        keys |= {f"prepare {m.name}": ("prepare", self._key_of(m, plan)) for m in plan.preparations}
        return {
            label: round(store.facts(*key)["own_seconds"], 3)
            for label, key in keys.items()
            if store.has(*key)
        }

    def _key_of(self, made: Preparation, plan: AttackPlan) -> str:
        encoder = self._encoder()
        told = encoder.model_dump(mode="json") if encoder else None
        return self.context.keys.preparation_of(made, plan.attack, told)

    def _make_shared(
        self,
        process: AttackProcess,
        plan: AttackPlan,
        made: Preparation,
        place: Desk,
        progress: Progress,
    ) -> Artifact:
        folder = place.base / f"for-{made.name}"
        folder.mkdir()
        self._hand_over(folder, self._shared_frame(plan, made), made.channels)
        arguments = preparation_arguments(made, plan.attack)
        learned = make_shared(
            process, folder, place.out, made.factory, arguments, self.budget, progress
        )
        return _learned(learned)

    def _prepared(
        self, process: AttackProcess, plan: AttackPlan, place: Desk, before: Spent
    ) -> tuple[Path, Spent]:
        """What the attack learns before the release, as a copy; and what that took here."""
        encoder = self._encoder()
        key = self.context.keys.prepare_of(
            plan, encoder.model_dump(mode="json") if encoder else None
        )
        label = f"prepare {plan.attack.name}"
        learned = self.context.obtain(
            "prepare",
            key,
            label,
            lambda progress: self._learn(process, plan, place, before, progress),
            lambda: None,
        )
        copy = place.out / "learned.safetensors"
        self._copy(key, copy)
        seconds = before.seconds + self.context.timing.get(label, 0.0)
        return copy, Spent(seconds, max(before.megabytes, float(learned.facts["peak_memory"])))

    def _copy(self, key: str, to: Path) -> None:
        with disk_errors(to.parent):
            to.parent.mkdir(exist_ok=True)
            shutil.copyfile(self.context.store.tensors_path("prepare", key), to)

    def _learn(
        self,
        process: AttackProcess,
        plan: AttackPlan,
        place: Desk,
        before: Spent,
        progress: Progress,
    ) -> Artifact:
        prior = plan.channels & PRIOR_CHANNELS
        self._hand_over(place.before, self._frame(plan, prior, "prepare"), prior)
        return _learned(
            learn(process, place.before, place.out, self.budget, progress, spent=before.seconds)
        )

    def _hand_over(self, folder: Path, frame: Frame, channels: frozenset[Channel]) -> None:
        owner = self.owner
        with disk_errors(folder):
            stream = self.context.owner_stream
            view(folder, frame, channels, owner.release, owner.truth, stream)

    def _encoder(self) -> Named | None:
        """The encoding defense with its parameters as they turned out."""
        encoding = self.cell.encoding
        if encoding is None:
            return None
        resolved = self.owner.release.resolved.get(encoding.name, {})
        return _named(encoding, dict(resolved))

    def _shared_frame(self, plan: AttackPlan, made: Preparation) -> Frame:
        """A frame that says no more than the preparation's key does."""
        known = AttackPlan(plan.attack, plan.kind, made.channels)
        frame = self._frame(known, made.channels, made.name)
        nobody = Named(name=made.name, config=preparation_arguments(made, plan.attack))
        axes: dict[str, str | int] = {"preparation": made.name}
        key = derive(self.context.board.key, axes).hex()
        told = {"attack": nobody, "key": key, "threat_model": "", "protocol": {}}
        return frame.model_copy(update=told)

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
            low=splits.scale.low,
            high=splits.scale.high,
            shape=splits.shape,
            input_shape=input_shape(self.owner.release) if network else (),
            classes=len(splits.classes),
            n_private=len(splits.private) if Channel.N_PRIVATE in present else None,
            encoder=self._encoder() if Channel.ENCODER in present else None,
            victim=_named(self.owner.victim_of(self.cell.defenses)) if network else None,
            protocol=self.cell.protocol,
            key=derive(self.context.board.key, axes).hex(),
            device=self.cell.device,
            seconds=budget.seconds,
            megabytes=budget.megabytes,
            threads=budget.threads,
        )


def desks() -> Path:
    """Where attacks work: the system's temporary folder, far from the store."""
    return Path(tempfile.gettempdir()) / f"encoding-harness-{os.getuid()}"


@contextmanager
def desk(label: str) -> Iterator[Desk]:
    """Folders for one attack, gone when it is done."""
    with scratch_folder(desks(), label.replace(" ", "-")) as base:
        place = Desk(base)
        for folder in (place.before, place.view, place.out):
            folder.mkdir()
        yield place


def _learned(learned: Learned) -> Artifact:
    spent = learned.spent
    facts = {"peak_memory": spent.megabytes, "own_seconds": spent.seconds}
    return Artifact(learned.tensors, facts)


def _named(resolved: Resolved, parameters: dict[str, float | int | str] | None = None) -> Named:
    config = resolved.config.model_dump(mode="json") | (parameters or {})
    return Named(name=resolved.name, config=config)

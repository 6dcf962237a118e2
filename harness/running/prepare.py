"""Prepare: what attacks learn before they see the release, by themselves or shared with others."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.knowledge import NETWORKS, PRIOR_CHANNELS, Channel
from harness.rng import public_stream
from harness.running.release import ReleaseStage
from harness.running.samples import Space, Truth, space_identity
from harness.running.stage import Output, Stage, budget_identity, code_identity, hardware
from harness.store.artifacts import Artifact
from harness.store.paths import disk_errors
from harness.store.provenance import (
    plugin_identity,
    preparation_arguments,
    preparation_identity,
)

if TYPE_CHECKING:
    from harness.api.plugins import Progress
    from harness.api.specs import Preparation
    from harness.asking.plan import AttackPlan
    from harness.running.run import Run
    from harness.running.workplace import Workplace
    from harness.sandbox.jobs import Frame, Named


@dataclass(frozen=True)
class Learned:
    """What learning took, whoever learned and when; the tensors stay in the store."""

    seconds: float
    megabytes: float


@dataclass(frozen=True, eq=False)
class PrepareStage(Stage[Learned]):
    """What an attack learns before the release: by itself, or one preparation that others share.

    A shared one, `made`, holds no more than its channels tell. `encoder` is the encoding defense
    as it turned out. `place` is where the attack works, `spent` the seconds that it has learned.
    """

    name = "prepare"
    tries = 1  # its process is the attack's, which begins anew
    plan: AttackPlan
    encoder: Named | None
    made: Preparation | None = None
    place: Workplace | None = None
    spent: float = 0.0

    @property
    def label(self) -> str:
        """By the preparation's name, or the attack's."""
        return f"{self.name} {(self.made or self.plan.attack).name}"

    @property
    def channels(self) -> frozenset[Channel]:
        """What it may be told of."""
        return self.made.channels if self.made else self.plan.channels

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """Public images, as judged; the release where a network in it may be looked at."""
        network = (ReleaseStage.of(self.cell),) if self.channels & NETWORKS else ()
        enlarged = (Truth.of(self.cell),) if self.cell.judged_at_release else ()
        return (Space.of(self.cell), *network, *enlarged)

    def facts(self) -> dict[str, Any]:
        """Whose code with which options, and the law of the defense where that is told."""
        cell = self.cell
        told = self.made is None or Channel.ENCODER in self.made.channels
        return {
            **(self._shared(self.made) if self.made else self._own()),
            "channels": sorted(self.channels),
            "encoder": self.encoder.model_dump(mode="json") if self.encoder and told else None,
            "defense": plugin_identity(cell.encoding) if cell.encoding and told else None,
            "handed over by": code_identity("harness.running.attack"),
            "space": space_identity(cell),
            "budget": budget_identity(cell),
            "seed": cell.request.seed,
            "hardware": hardware(cell, cell.precision(self.plan.attack.spec)),
        }

    def _shared(self, made: Preparation) -> dict[str, Any]:
        return {"preparation": preparation_identity(made, self.plan.attack)}

    def _own(self) -> dict[str, Any]:
        attack = self.plan.attack
        return {
            "attack": plugin_identity(attack),
            "shared": [preparation_identity(made, attack) for made in self.plan.preparations],
            "threat_model": self.cell.threat_model.name,
            "protocol": self.cell.protocol,
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Let the attack's process learn, on a view that holds nothing of the release."""
        from harness.running.attack import frame_of, hand_over
        from harness.running.workplace import tensors_in
        from harness.sandbox.jobs import PREPARED

        place, folder, job = self._ready()
        channels = self.made.channels if self.made else self.plan.channels & PRIOR_CHANNELS
        plan = replace(self.plan, channels=channels) if self.made else self.plan
        purpose = self.made.name if self.made else self.name
        frame = frame_of(run, plan, channels, purpose)
        hand_over(run, folder, self._anonymous(frame, self.made) if self.made else frame, channels)
        job = {**job, "view": str(folder), "out": str(place.out)}
        took = place.process.ask(job, run.budget, progress, spent=self.spent)
        spent = {"peak_memory": took.megabytes, "own_seconds": took.seconds}
        facts = {**spent, "walls": place.process.walls}
        return Artifact(tensors_in(place.out / PREPARED), facts)

    def _ready(self) -> tuple[Workplace, Path, dict[str, Any]]:
        """Where to learn, the folder for the view, and what the process is told to do."""
        assert self.place is not None, "an attack learns in a process of its own"
        if self.made is None:
            return self.place, self.place.before, {"action": "prepare"}
        folder = self.place.base / f"for-{self.made.name}"
        folder.mkdir()
        arguments = preparation_arguments(self.made, self.plan.attack)
        job = {"action": "share", "factory": self.made.factory, "arguments": arguments}
        return self.place, folder, job

    def _anonymous(self, frame: Frame, made: Preparation) -> Frame:
        """A frame that says no more than the key of a shared preparation does."""
        named = {"name": made.name, "config": preparation_arguments(made, self.plan.attack)}
        stream = public_stream(self.cell.request.seed).stream(preparation=made.name)
        told = {"attack": named, "key": stream.key.hex(), "threat_model": "", "protocol": {}}
        return type(frame).model_validate({**frame.model_dump(), **told})

    def read(self, stored: Artifact) -> Learned:
        """What it took."""
        return Learned(float(stored.facts["own_seconds"]), float(stored.facts["peak_memory"]))


def preparing(run: Run, plan: AttackPlan, place: Workplace | None = None) -> list[PrepareStage]:
    """All that an attack learns before the release: what it shares with others, then its own."""
    from harness.running.attack import encoder_of

    encoder = encoder_of(run)
    return [
        PrepareStage(run.cell, plan, encoder, made, place) for made in (*plan.preparations, None)
    ]


def prepare(run: Run, plan: AttackPlan, place: Workplace) -> tuple[Path, Learned]:
    """Learn, or take from the store; the file with what was learned, and what that took here."""
    from harness.sandbox.jobs import SHARED

    taken = Learned(0.0, 0.0)
    *shared, own = preparing(run, plan, place)
    for stage in shared:
        taken = _added(run, stage, taken)
        for folder in (place.before, place.view):
            assert stage.made
            _copy(run, stage.key, folder / SHARED / f"{stage.made.name}.safetensors")
    taken = _added(run, replace(own, spent=taken.seconds), taken)
    learned = place.base / "learned.safetensors"
    _copy(run, own.key, learned)
    return learned, taken


def _added(run: Run, stage: PrepareStage, taken: Learned) -> Learned:
    """Time and memory so far, with this stage's; its seconds count only if this attack made it."""
    known = stage.key in run.made
    learned = run(stage)
    seconds = 0.0 if known or stage.key not in run.made else learned.seconds
    return Learned(taken.seconds + seconds, max(taken.megabytes, learned.megabytes))


def _copy(run: Run, key: str, to: Path) -> None:
    with disk_errors(to.parent):
        to.parent.mkdir(exist_ok=True)
        shutil.copyfile(run.store.tensors_path("prepare", key), to)

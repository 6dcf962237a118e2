"""Prepare: what attacks learn before they see the release, by themselves or shared with others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.knowledge import NETWORKS, PRIOR_CHANNELS, Channel
from harness.running.release import ReleaseStage
from harness.running.space import Space, space_identity
from harness.running.stage import Output, Stage, budget_identity, hardware
from harness.store.artifacts import Artifact
from harness.store.paths import disk_errors
from harness.store.provenance import plugin_identity, preparation_arguments, preparation_identity

if TYPE_CHECKING:
    from harness.api.plugins import Progress
    from harness.api.specs import Preparation
    from harness.asking.plan import AttackPlan
    from harness.asking.selector import Resolved
    from harness.running.run import Run
    from harness.running.view import Workplace
    from harness.sandbox.jobs import Frame, Named


@dataclass(frozen=True)
class Learned:
    """What learning took, whoever learned and when; the tensors stay in the store."""

    seconds: float
    megabytes: float


@dataclass(frozen=True, eq=False)
class PreparationStage(Stage[Learned]):
    """A preparation that attacks share: it holds no more than its channels tell.

    `encoder` is the encoding defense as it turned out.
    """

    name = "prepare"
    made: Preparation
    attack: Resolved
    encoder: Named | None
    place: Workplace | None = None

    @property
    def label(self) -> str:
        """By the preparation's name."""
        return f"{self.name} {self.made.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """Public images; the release where a network in it may be looked at."""
        return _inputs(self, self.made.channels)

    def facts(self) -> dict[str, Any]:
        """Code, arguments, and the law of the defense where it is told."""
        encoding = self.cell.encoding
        told = Channel.ENCODER in self.made.channels
        return {
            "preparation": preparation_identity(self.made, self.attack),
            "channels": sorted(self.made.channels),
            "encoder": self.encoder.model_dump(mode="json") if self.encoder and told else None,
            "defense": plugin_identity(encoding) if encoding and told else None,
            **_common(self),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Let the attack's process make it, on a view that says no more than the key does."""
        from harness.asking.plan import AttackPlan
        from harness.running.view import hand_over

        place = _required(self.place)
        folder = place.base / f"for-{self.made.name}"
        folder.mkdir()
        known = AttackPlan(self.attack, self.cell.kind, self.made.channels)
        arguments = preparation_arguments(self.made, self.attack)
        hand_over(run, folder, self._frame(run, known, arguments), self.made.channels)
        job = {"action": "share", "view": str(folder), "factory": self.made.factory}
        return _learned(run, place, {**job, "arguments": arguments}, progress)

    def _frame(self, run: Run, known: AttackPlan, arguments: dict[str, Any]) -> Frame:
        from harness.rng import public_stream
        from harness.running.view import frame_of
        from harness.sandbox.jobs import Named

        frame = frame_of(run, known, self.made.channels, self.made.name)
        stream = public_stream(self.cell.request.seed).stream(preparation=self.made.name)
        nobody = Named(name=self.made.name, config=arguments)
        told = {"attack": nobody, "key": stream.key.hex(), "threat_model": "", "protocol": {}}
        return frame.model_copy(update=told)

    def read(self, stored: Artifact) -> Learned:
        """What it took."""
        return _read(stored)


@dataclass(frozen=True, eq=False)
class PrepareStage(Stage[Learned]):
    """What one attack learns beforehand: the law of the defense, never the release."""

    name = "prepare"
    plan: AttackPlan
    encoder: Named | None
    place: Workplace | None = None
    spent: float = 0.0
    """Seconds that its preparations took."""

    @property
    def label(self) -> str:
        """By the attack's name."""
        return f"{self.name} {self.plan.attack.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """Public images; the release where a network in it may be looked at."""
        return _inputs(self, self.plan.channels)

    def facts(self) -> dict[str, Any]:
        """The attack, its channels, and the law of the defense."""
        plan, encoding = self.plan, self.cell.encoding
        return {
            "attack": plugin_identity(plan.attack),
            "shared": [preparation_identity(made, plan.attack) for made in plan.preparations],
            "channels": sorted(plan.channels),
            "threat_model": self.cell.threat_model.name,
            "protocol": self.cell.protocol,
            "encoder": self.encoder.model_dump(mode="json") if self.encoder else None,
            "defense": plugin_identity(encoding) if encoding else None,
            **_common(self),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Let the attack prepare on a view that holds nothing of the release."""
        from harness.running.view import frame_of, hand_over

        place = _required(self.place)
        prior = self.plan.channels & PRIOR_CHANNELS
        hand_over(run, place.before, frame_of(run, self.plan, prior, "prepare"), prior)
        job = {"action": "prepare", "view": str(place.before)}
        return _learned(run, place, job, progress, spent=self.spent)

    def read(self, stored: Artifact) -> Learned:
        """What it took."""
        return _read(stored)


def preparing(run: Run, plan: AttackPlan) -> Iterator[PreparationStage | PrepareStage]:
    """All that an attack learns before the release, as it is looked up in the store."""
    from harness.running.view import encoder_of

    encoder = encoder_of(run)
    for made in plan.preparations:
        yield PreparationStage(run.cell, made, plan.attack, encoder)
    yield PrepareStage(run.cell, plan, encoder)


def prepare(run: Run, plan: AttackPlan, place: Workplace) -> tuple[Path, Learned]:
    """Learn, or take from the store; the file with what was learned, and what that took here."""
    from harness.running.view import encoder_of
    from harness.sandbox.jobs import SHARED

    encoder, taken = encoder_of(run), Learned(0.0, 0.0)
    for made in plan.preparations:
        stage = PreparationStage(run.cell, made, plan.attack, encoder, place)
        taken = _added(run, stage, taken)
        for folder in (place.before, place.view):
            _copy(run, stage.key, folder / SHARED / f"{made.name}.safetensors")
    own = PrepareStage(run.cell, plan, encoder, place, taken.seconds)
    taken = _added(run, own, taken)
    learned = place.out / "learned.safetensors"
    _copy(run, own.key, learned)
    return learned, taken


def _added(run: Run, stage: PreparationStage | PrepareStage, taken: Learned) -> Learned:
    """What was taken so far, and by this; seconds only where it was made for this attack."""
    known = stage.key in run.made
    learned = run(stage)
    seconds = 0.0 if known or stage.key not in run.made else learned.seconds
    return Learned(taken.seconds + seconds, max(taken.megabytes, learned.megabytes))


def _copy(run: Run, key: str, to: Path) -> None:
    with disk_errors(to.parent):
        to.parent.mkdir(exist_ok=True)
        shutil.copyfile(run.store.tensors_path("prepare", key), to)


def _inputs(
    stage: PreparationStage | PrepareStage, channels: frozenset[Channel]
) -> tuple[Output[Any], ...]:
    network = (ReleaseStage.of(stage.cell),) if channels & NETWORKS else ()
    return (Space(stage.cell), *network)


def _common(stage: PreparationStage | PrepareStage) -> dict[str, Any]:
    cell = stage.cell
    return {
        "space": space_identity(cell),
        "budget": budget_identity(cell),
        "seed": cell.request.seed,
        "hardware": hardware(cell),
    }


def _learned(
    run: Run, place: Workplace, job: dict[str, Any], progress: Progress, *, spent: float = 0.0
) -> Artifact:
    from harness.running.view import tensors_in
    from harness.sandbox.jobs import PREPARED

    took = place.process.ask({**job, "out": str(place.out)}, run.budget, progress, spent=spent)
    facts = {"peak_memory": took.megabytes, "own_seconds": took.seconds}
    return Artifact(tensors_in(place.out / PREPARED), facts)


def _read(stored: Artifact) -> Learned:
    return Learned(float(stored.facts["own_seconds"]), float(stored.facts["peak_memory"]))


def _required(place: Workplace | None) -> Workplace:
    assert place is not None, "an attack learns in a process of its own"
    return place

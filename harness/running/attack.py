"""Attack: a view goes to a process of its own, a reconstruction comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.running.prepare import prepare, preparing
from harness.running.release import ReleaseStage
from harness.running.space import Space
from harness.running.stage import Output, Stage, budget_identity, code_identity, hardware
from harness.running.truth import Truth
from harness.store.artifacts import Artifact
from harness.store.provenance import plugin_identity, preparation_identity

if TYPE_CHECKING:
    from harness.api.plugins import Progress, Reconstruction
    from harness.asking.plan import AttackPlan
    from harness.running.run import Run


@dataclass(frozen=True)
class Answer:
    """What an attack brought back, and what that took."""

    reconstruction: Reconstruction
    peak_memory: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class AttackStage(Stage[Answer]):
    """One attack on the cell's release."""

    name = "attack"
    plan: AttackPlan

    @property
    def label(self) -> str:
        """By the attack's name."""
        return f"{self.name} {self.plan.attack.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The release, and the splits that public images and candidates come from."""
        held_out = (Truth(self.cell),) if self.cell.held_out else ()
        return (ReleaseStage.of(self.cell), Space(self.cell), *held_out)

    def facts(self) -> dict[str, Any]:
        """The attack, its channels and its budget: it may pace itself by that."""
        plan = self.plan
        return {
            "attack": plugin_identity(plan.attack),
            "shared": [preparation_identity(made, plan.attack) for made in plan.preparations],
            "learned by": code_identity("harness.running.prepare"),
            "channels": sorted(plan.channels),
            "threat_model": self.cell.threat_model.name,
            "budget": budget_identity(self.cell),
            "seed": self.cell.request.seed,
            "hardware": hardware(self.cell),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Prepare, then let the attack at the release."""
        from harness.running.view import frame_of, hand_over, tensors_in, workplace
        from harness.sandbox.jobs import DIAGNOSTICS, FOUND

        plan = self.plan
        with run.processes.take() as process, workplace(process, self.label) as place:
            learned, before = prepare(run, plan, place)
            frame = frame_of(run, plan, plan.channels, "reconstruct")
            hand_over(run, place.view, frame, plan.channels)
            folders = {"view": str(place.view), "out": str(place.out), "prepared": str(learned)}
            job = {"action": "reconstruct", **folders}
            took = process.ask(job, run.budget, progress, spent=before.seconds)
            tensors = tensors_in(place.out / FOUND)
            diagnostics = json.loads((place.out / DIAGNOSTICS).read_text(encoding="utf-8"))
        facts = {
            "diagnostics": diagnostics,
            "peak_memory": {self.label: max(took.megabytes, before.megabytes)},
            "own_seconds": took.seconds,
        }
        return Artifact(tensors, facts)

    def read(self, stored: Artifact) -> Answer:
        """What came back."""
        from harness.sandbox.jobs import unpack

        found = unpack(dict(stored.tensors), stored.facts.get("diagnostics", {}))
        return Answer(found, stored.facts.get("peak_memory", {}))


def learned_by(run: Run, plan: AttackPlan) -> dict[str, dict[str, Any]]:
    """What the attack's preparations were, by content, for the record."""
    shared = [
        stage for stage in preparing(run, plan) if stage.label != f"prepare {plan.attack.name}"
    ]
    return {s.label: run.store.identity(s.name, s.key) for s in shared if run.has(s)}


def seconds_of(run: Run, plan: AttackPlan) -> dict[str, float]:
    """What the attack took, and what it learned before, whoever made it and when."""
    stages: list[Stage[Any]] = [AttackStage(run.cell, plan), *preparing(run, plan)]
    return {
        stage.label: round(run.store.facts(stage.name, stage.key)["own_seconds"], 3)
        for stage in stages
        if run.store.has(stage.name, stage.key)
    }

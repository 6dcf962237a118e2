"""The judge's side of a run: metrics, nulls, and one judgement per attack."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch

from harness.api import CellFailed, Metric, MetricSpec, Reconstruction, Scene
from harness.checks import check_judgement
from harness.engines.attacker import Attacker
from harness.engines.codec import pack_judgement, unpack_attacked
from harness.engines.context import Context, plugin_boundary
from harness.engines.owner import Owner
from harness.plan import AttackPlan
from harness.registry import load_factory
from harness.scoring.identification import Identification, identification
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import verdict
from harness.stages.judge import Judgement, NullScores, judge, score_nulls
from harness.stages.view import candidates
from harness.store import Artifact


class Court:
    """Who compares what came back with the truth."""

    def __init__(self, context: Context, owner: Owner, attacker: Attacker) -> None:
        self.context = context
        self.cell = context.cell
        self.owner = owner
        self.attacker = attacker
        self.stream = context.board.stream(stage="judge")

    def judged(self, plan: AttackPlan) -> Artifact:
        """One attack's scores: per image, and summed up in facts."""
        return self.context.obtain(
            "judge",
            self.context.keys.judge_of(plan),
            f"judge {plan.attack.name}",
            lambda _: self._judge(plan),
            lambda: self.attacker.attacked(plan),
        )

    @cached_property
    def metrics(self) -> Mapping[str, tuple[MetricSpec, Metric | str]]:
        """Metrics ready to score, or why they cannot."""
        splits, targets = self.owner.splits, self.owner.targets
        others = splits.test.unit().images[: len(splits.private)]
        decoys = torch.cat([splits.private[targets:].unit().images, others])
        scene = Scene(splits.scale, self.context.device, self.context.assets, decoys)
        return {spec.name: (spec, self._metric(spec, scene)) for spec in self.cell.metrics}

    def _metric(self, spec: MetricSpec, scene: Scene) -> Metric | str:
        if spec.name in self.cell.unavailable:
            return self.cell.unavailable[spec.name]
        if spec.of == "images" and not scene.scale.of_images:
            return self._no_images()
        factory = load_factory(spec, self.context.registry.origin("metrics", spec.name))
        try:
            with plugin_boundary(spec.name):
                metric: Metric = factory(scene)
                self._probe(metric)
        except CellFailed as error:
            return str(error)
        return metric

    def _no_images(self) -> str:
        space = self.cell.space
        held = f"'{space.name}' holds features" if space.spec.extracts else "these are vectors"
        return f"compares images, and {held}; no attack has made images of them"

    def _probe(self, metric: Metric) -> None:
        """Let a metric fail on a pair of images rather than in the middle of everybody's cell."""
        pair = self.owner.splits.private[:2].unit().images.to(self.context.device)
        if metric.unavailable(self.owner.splits.shape) is None:
            metric.score(pair, pair)

    @cached_property
    def _nulls(self) -> NullScores:
        return score_nulls(
            self.owner.splits,
            self.owner.targets,
            metrics=self.metrics,
            stream=self.stream,
            device=self.context.device,
            signs_hidden=self.cell.hides_signs,
        )

    def _judge(self, plan: AttackPlan) -> Artifact:
        found = unpack_attacked(self.attacker.attacked(plan))
        with plugin_boundary("judge"):
            judgement = judge(
                found,
                self.owner.splits,
                self.owner.targets,
                sources=self.owner.primary_sources(),
                metrics=self.metrics,
                stream=self.stream,
                device=self.context.device,
                nulls=self._nulls,
                attack=plan.attack.name,
                signs_hidden=self.cell.hides_signs,
            )
        return pack_judgement(judgement, _facts(judgement, self._identified(found, plan)))

    def _identified(self, found: Reconstruction, plan: AttackPlan) -> Identification | None:
        """How well the attack's candidate scores pick the true images, if it gave any."""
        scores = found.claims.get("candidate_scores")
        if scores is None:
            return None
        targets = self.owner.targets
        truth = candidates(self.owner.splits, self.context.owner_stream).truth[:targets]
        stream = self.stream.stream(use="identification")
        return identification(scores[:targets], truth, stream, plan.attack.name)


def _facts(judgement: Judgement, found: Identification | None) -> dict[str, Any]:
    privacy = {n: s.model_dump(mode="json") for n, s in judgement.privacy.items()}
    return {
        "privacy": privacy,
        "flags": [flag.model_dump() for flag in check_judgement(judgement)],
        "verdict": verdict(judgement.privacy, found),
        "identification": found.model_dump(mode="json") if found else None,
        "notes": list(judgement.notes),
    }


def privacy_of(judged: Artifact) -> dict[str, MetricScore]:
    """The scores in a stored judgement."""
    stored = judged.facts["privacy"]
    return {name: MetricScore.model_validate(values) for name, values in stored.items()}

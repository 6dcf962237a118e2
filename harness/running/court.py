"""The judge's side of a run: metrics, nulls, and one judgement per attack."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from harness.api import CellFailed, Metric, MetricSpec, Scene
from harness.asking.plan import AttackPlan
from harness.asking.registry import load_factory
from harness.running.attacker import Attacker
from harness.running.codec import (
    SCORE,
    guesses_of,
    pack_judgement,
    pack_nulls,
    scores_of,
    unpack_attacked,
    unpack_nulls,
)
from harness.running.context import Context, plugin_boundary
from harness.running.evidence import Evidence
from harness.running.judge import (
    NO_HELP,
    Help,
    Judgement,
    NullScores,
    judge,
    left_out,
    score_images,
    score_nulls,
)
from harness.running.owner import Owner
from harness.scoring.by_image import ByImage, another_of_its_class, by_image
from harness.scoring.leakage import check_judgement
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import FoundOut, verdict
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

    def misplaced(self, plan: AttackPlan) -> Artifact | None:
        """What an attack's answers score where they are given to others of their class.

        None where it shows no images. NaN for an image that is alone in its class. Over many
        attacks some are lucky somewhere: these have the same luck and know nothing.
        """
        judged = self.judged(plan)
        if not judged.tensors["found"].any():
            return None
        return self.context.obtain(
            "judge",
            self.context.keys.misplaced_of(plan),
            f"judge {plan.attack.name}",
            lambda _: self._misplaced(judged),
            lambda: self.metrics,
        )

    def by_image(self, plan: AttackPlan) -> dict[str, ByImage]:
        """An attack's scores image by image, and what they are held against."""
        judged, misplaced = self.judged(plan), self.misplaced(plan)
        columns = (scores_of(judged), guesses_of(judged), scores_of(misplaced) if misplaced else {})
        return by_image(privacy_of(judged), *map(_lists, columns))

    def _misplaced(self, judged: Artifact) -> Artifact:
        truth = self.owner.truth
        others = another_of_its_class(truth.private.labels[: self.owner.targets])
        folded = judged.tensors.get("images_abs")
        scores = score_images(
            judged.tensors["images"][others],
            truth,
            metrics=self.metrics,
            device=self.context.device,
            signs_hidden=self.cell.hides_signs,
            images_abs=None if folded is None else folded[others],
        )
        alone = others == torch.arange(len(others))
        fair = {name: values.masked_fill(alone, torch.nan) for name, values in scores.items()}
        return Artifact({f"{SCORE}{name}": values for name, values in fair.items()})

    @cached_property
    def metrics(self) -> Mapping[str, tuple[MetricSpec, Metric | str]]:
        """Metrics ready to score, or why they cannot."""
        truth, targets = self.owner.truth, self.owner.targets
        others = truth.test[: len(truth.private)].unit().images
        scene = Scene(
            scale=truth.scale,
            device=self.context.device,
            assets=self.context.assets,
            decoys=torch.cat([truth.private[targets:].unit().images, others]),
            public=truth.public,
            labels=truth.private.labels[:targets],
            classes=len(truth.classes),
        )
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
        truth = self.owner.truth
        pair = truth.private[: min(2, self.owner.targets)].unit().images.to(self.context.device)
        if metric.unavailable(truth.shape) is None:
            metric.score(pair, pair)

    @cached_property
    def _nulls(self) -> NullScores:
        """The nulls of attacks that named their targets, scored once for all cells."""
        kept = self.context.obtain(
            "judge",
            self.context.keys.nulls,
            "judge nulls",
            lambda _: pack_nulls(self._score_nulls(NO_HELP)),
            lambda: self.metrics,
        )
        return unpack_nulls(kept)

    def nulls(self, told: Help) -> NullScores:
        """The nulls, for attacks that left their images to be matched with so much help."""
        return self._nulls if told.same(NO_HELP) else self._score_nulls(told)

    def _score_nulls(self, told: Help) -> NullScores:
        return score_nulls(
            self.owner.truth,
            self.owner.targets,
            metrics=self.metrics,
            stream=self.stream,
            device=self.context.device,
            signs_hidden=self.cell.hides_signs,
            told=told,
        )

    def _judge(self, plan: AttackPlan) -> Artifact:
        found = unpack_attacked(self.attacker.attacked(plan))
        with plugin_boundary("judge"):
            judgement = judge(
                found,
                self.owner.truth,
                self.owner.targets,
                sources=self.owner.primary_sources(),
                groups=self.owner.batches(),
                metrics=self.metrics,
                stream=self.stream,
                device=self.context.device,
                nulls=self._nulls,
                attack=plan.attack.name,
                signs_hidden=self.cell.hides_signs,
            )
            evidence = self.evidence
            identified = evidence.identified(found, plan.attack.name)
            claims = evidence.claimed(found)
            claimed = claims | evidence.shown(judgement)
        facts = {
            "privacy": {n: s.model_dump(mode="json") for n, s in judgement.privacy.items()},
            "flags": [flag.model_dump() for flag in check_judgement(judgement)],
            "verdict": _said(judgement, {plan.attack.name: FoundOut(identified, claims)}),
            "identification": identified.model_dump(mode="json") if identified else None,
            "findings": {n: f.model_dump(mode="json") for n, f in claimed.items()},
            "notes": list(judgement.notes),
            "unnamed": judgement.unnamed,
            "grouped": judgement.grouped,
        }
        return pack_judgement(judgement, evidence.errors(judgement), facts)

    @cached_property
    def evidence(self) -> Evidence:
        """What claims are compared with."""
        return Evidence(self.context, self.owner, self.stream)


def privacy_of(judged: Artifact) -> dict[str, MetricScore]:
    """The scores in a stored judgement."""
    stored = judged.facts["privacy"]
    return {name: MetricScore.model_validate(values) for name, values in stored.items()}


def _said(judgement: Judgement, told: Mapping[str, FoundOut]) -> str:
    """The verdict, and of how many targets it says nothing where an attack shows but some."""
    partial = left_out(judgement.found) if judgement.found.any() else ()
    return " ".join([verdict(judgement.privacy, told), *(f"{note}." for note in partial)])


def _lists(columns: Mapping[str, Tensor]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in columns.items()}

"""Judge: what an attack brought back, against the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.api.errors import CellFailed
from harness.api.knowledge import OF_BATCHES
from harness.api.plugins import Metric, Scene
from harness.api.specs import MetricSpec
from harness.rng import public_stream, secret_stream
from harness.running.attack import AttackStage
from harness.running.samples import Truth
from harness.running.stage import Output, Stage, hardware, plugin_boundary
from harness.scoring.findings import Finding
from harness.scoring.flags import Flag, judgement_flags, missed_forecast, public_images
from harness.scoring.identification import Identification
from harness.scoring.judgement import unscored
from harness.scoring.matching import COLOUR, MEAN, Nulls
from harness.scoring.summary import ByImage, MetricScore, by_image
from harness.scoring.verdict import FoundOut, verdict
from harness.store.artifacts import Artifact, below
from harness.store.provenance import assets_identity, packages_of, sha256_of, source_sha256

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.asking.plan import AttackPlan, Cell
    from harness.rng import KeyedStream
    from harness.running.evidence import Evidence
    from harness.running.run import Run
    from harness.scoring.judgement import Help, Judge, NullScores

SCORE = "score."
"""What the scores of a metric, image by image, are stored under."""
GUESS = "guess."
"""Likewise those of the best guess."""
MISPLACED = "misplaced."
"""Likewise those of the attack's answers where other images of the class are true."""
EASIER = "easier."
"""Likewise how much easier to guess than those the targets are."""
IMAGE = "image."
"""Likewise what a null shows: one image for each target, or one for all."""

Scores = Mapping[str, "Tensor"]
"""[targets] float64 by name, NaN where undefined."""


@dataclass(frozen=True)
class Judged:
    """What one attack gives away.

    By metric, `scores` and those of the best `guesses` [targets]; `misplaced`, what the answers
    score where others are true, and how much `easier` to guess than these the targets are [draws,
    targets]. `images` [targets, c, h, w] in [0,1] are what was judged, the mean public image where
    `found` [targets] is False; metrics on absolute values judged `images_abs` in their place where
    it is not None. `errors` [targets] is the squared error a standardised value. `unnamed` images
    were matched by the truth, `grouped` only within batches.
    """

    privacy: Mapping[str, MetricScore]
    scores: Scores
    guesses: Scores
    misplaced: Scores
    easier: Scores
    images: Tensor
    found: Tensor
    errors: Tensor
    images_abs: Tensor | None
    flags: tuple[Flag, ...]
    verdict: str
    identification: Identification | None
    findings: Mapping[str, Finding]
    unnamed: int
    grouped: bool

    @property
    def shown(self) -> bool:
        """Whether there were any images."""
        return bool(self.found.any())


@dataclass(frozen=True, eq=False)
class Metrics(Output[Mapping[str, tuple[MetricSpec, Metric | str]]]):
    """The metrics that were asked for, ready to score, or why they cannot."""

    @property
    def inputs(self) -> tuple[Truth]:
        """The images that a metric may learn from or hide others among."""
        return (Truth.of(self.cell),)

    def facts(self) -> dict[str, Any]:
        """Each metric, and why one cannot be had."""
        metrics = [metric_identity(spec) for spec in self.cell.metrics]
        return {"metrics": metrics, "unavailable": dict(self.cell.unavailable)}

    def obtain(self, run: Run) -> Mapping[str, tuple[MetricSpec, Metric | str]]:
        """Build each and let it fail on a pair of images, not in the middle of a cell."""
        import torch

        judged = run.truth
        truth, targets = judged.splits, judged.targets
        others = truth.test[: len(truth.private)].unit().images
        scene = Scene(
            scale=truth.scale,
            device=run.device,
            assets=run.assets,
            decoys=torch.cat([truth.private[targets:].unit().images, others]),
            public=truth.public,
            labels=truth.private.labels[:targets],
            classes=len(truth.classes),
        )
        pair = truth.private[: min(2, targets)].unit().images.to(run.device)
        return {
            spec.name: (spec, self._metric(run, spec, scene, pair, truth.shape))
            for spec in self.cell.metrics
        }

    def _metric(
        self, run: Run, spec: MetricSpec, scene: Scene, pair: Tensor, shape: tuple[int, ...]
    ) -> Metric | str:
        if spec.name in self.cell.unavailable:
            return self.cell.unavailable[spec.name]
        if spec.of == "images" and not scene.scale.of_images:
            return self._no_images()
        try:
            metric: Metric = run.build("metrics", spec, scene)
            with plugin_boundary(spec.name):
                if metric.unavailable(shape) is None:
                    metric.score(pair, pair)
        except CellFailed as error:
            return str(error)
        return metric

    def _no_images(self) -> str:
        space = self.cell.space
        held = f"'{space.name}' holds features" if space.spec.extracts else "these are vectors"
        return f"compares images, and {held}; no attack has made images of them"


def metric_identity(spec: MetricSpec) -> list[Any]:
    """What makes two metrics the same."""
    module = spec.factory.partition(":")[0]
    code = [source_sha256(module), packages_of(module)]
    return [spec.name, spec.version, *code, assets_identity(spec.assets)]


@dataclass(frozen=True, eq=False)
class ScoreStage(Output[Scores]):
    """The scores of one metric, stored on their own: a metric more does not score the others again.

    `scored` names what is; `metric` may end in `_abs`.
    """

    scored: tuple[str, ...]
    metric: str
    score: Callable[[], Scores]

    @property
    def inputs(self) -> tuple[Truth]:
        """What is scored against."""
        return (Truth.of(self.cell),)

    def facts(self) -> dict[str, Any]:
        """The metric, in one domain."""
        name = self.metric.removesuffix("_abs")
        spec = next(spec for spec in self.cell.metrics if spec.name == name)
        return {
            "scored": self.scored,
            "metric": [self.metric, metric_identity(spec)],
            "seed": self.cell.request.seed,
            "hardware": hardware(self.cell),
        }

    def obtain(self, run: Run) -> Scores:
        """From the store, or scored in the midst of judging."""
        with run.store.turn("judge", self.key, force=run.forced("judge")) as stored:
            if stored is not None:
                return {name: stored.tensors[name] for name in stored.facts["order"]}
            scores = self.score()
            run.store.write("judge", self.key, Artifact(scores, {"order": list(scores)}))
            return scores


@dataclass(frozen=True, eq=False)
class NullsStage(Stage[Nulls]):
    """What guesses without the release show: the same for all attacks and defenses."""

    name = "judge"

    @property
    def label(self) -> str:
        """As a user sees it."""
        return "judge nulls"

    @property
    def inputs(self) -> tuple[Truth]:
        """Public images, and whose guesses they are."""
        return (Truth.of(self.cell),)

    def facts(self) -> dict[str, Any]:
        """The seed: some guesses are drawn."""
        return {"seed": self.cell.request.seed, "hardware": hardware(self.cell)}

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Guess."""
        from harness.scoring.judgement import nulls_of

        truth = run.truth
        nulls = nulls_of(truth.splits, truth.targets, judging(self.cell), run.device)
        images = {
            f"{IMAGE}{name}": shown[:1] if name in (MEAN, COLOUR) else shown
            for name, shown in nulls.images.items()
        }
        return Artifact(images, {"notes": list(nulls.notes), "order": list(nulls.images)})

    @staticmethod
    def read(stored: Artifact) -> Nulls:
        """The first of equals is the best, so their order counts."""
        shown = below(IMAGE, stored.tensors)
        most = max(len(images) for images in shown.values())
        images = {n: shown[n].expand(most, *shown[n].shape[1:]) for n in stored.facts["order"]}
        return Nulls(images, tuple(stored.facts["notes"]))


def judging(cell: Cell) -> KeyedStream:
    """The judge's own randomness."""
    return public_stream(cell.request.seed).stream(stage="judge")


def judge_of(run: Run, *of: str) -> Judge:
    """The judge of a cell, who keeps the scores of what `of` names."""
    from harness.scoring.judgement import Judge

    return Judge(
        truth=run.truth.splits,
        targets=run.truth.targets,
        metrics=run(Metrics.of(run.cell)),
        stream=judging(run.cell),
        device=run.device,
        signs_hidden=run.cell.hides_signs,
        kept=lambda against, metric, score: run(
            ScoreStage(run.cell, (*of, against), metric, score)
        ),
    )


def name_of(told: Help) -> tuple[str, str, str]:
    """What nulls are scored with: the batches of another release are others."""
    batches = "" if told.groups is None else sha256_of(told.groups.tolist())
    return "nulls", str(told.guesses), batches


def null_scores(run: Run, told: Help) -> NullScores:
    """The nulls' scores, matched with as much help from the truth as an attack's images."""
    judge = judge_of(run, *name_of(told))
    return judge.score_nulls(told, run(NullsStage.of(run.cell)))


@dataclass(frozen=True, eq=False)
class JudgeStage(Stage[Judged]):
    """The scores of one attack, and what it found out."""

    name = "judge"
    plan: AttackPlan

    @property
    def label(self) -> str:
        """By the attack's name."""
        return f"{self.name} {self.plan.attack.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """What came back, and what it is compared with."""
        return (AttackStage(self.cell, self.plan), Truth.of(self.cell))

    def facts(self) -> dict[str, Any]:
        """The metrics that were asked for, and the seed of intervals."""
        return {**Metrics.of(self.cell).facts(), "seed": self.cell.request.seed}

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Match, score, and look at what else is claimed."""
        cell, attack = self.cell, self.plan.attack.name
        found = run(AttackStage(cell, self.plan)).reconstruction
        sources = run.release.secrets.get("sources")
        with plugin_boundary("judge"):
            judgement = judge_of(run, "attack", AttackStage(cell, self.plan).key).judge(
                found,
                sources=None if sources is None else sources[..., 0].flatten(),
                groups=groups_of(run),
                nulls=run.nulls,
                attack=attack,
            )
            evidence = evidence_of(run)
            identified = evidence.identified(found, attack)
            claims = evidence.claimed(found)
            findings = claims | evidence.shown(judgement)
        errors = evidence.errors(judgement)
        told = {attack: FoundOut(identified, claims)}
        flags = [*judgement_flags(judgement), *missed_forecast(found.diagnostics, findings)]
        if run.truth.splits.scale.of_images and not self.plan.attack.spec.companion:
            flags += public_images(judgement, run.truth.splits.public.unit().images)
        facts = {
            "privacy": {n: s.model_dump(mode="json") for n, s in judgement.privacy.items()},
            "flags": [flag.model_dump() for flag in flags],
            "verdict": _said(judgement.privacy, judgement.found, told),
            "identification": identified.model_dump(mode="json") if identified else None,
            "findings": {n: f.model_dump(mode="json") for n, f in findings.items()},
            "notes": list(judgement.notes),
            "unnamed": judgement.unnamed,
            "grouped": judgement.grouped,
            "nulls": NullsStage.of(cell).key,
        }
        scores = {f"{SCORE}{name}": values for name, values in judgement.per_image.items()}
        guesses = {f"{GUESS}{name}": values for name, values in judgement.guesses.items()}
        misplaced = {f"{MISPLACED}{name}": each for name, each in judgement.misplaced.items()}
        easier = {f"{EASIER}{name}": each for name, each in judgement.easier.items()}
        images = {"images": judgement.images, "found": judgement.found, "errors": errors}
        if judgement.images_abs is not None:
            images["images_abs"] = judgement.images_abs
        return Artifact({**images, **scores, **guesses, **misplaced, **easier}, facts)

    def read(self, stored: Artifact) -> Judged:
        """Scores and findings."""
        tensors, facts = stored.tensors, stored.facts
        return Judged(
            privacy=with_left_out(self.cell, facts["privacy"]),
            scores=below(SCORE, tensors),
            guesses=below(GUESS, tensors),
            misplaced=below(MISPLACED, tensors),
            easier=below(EASIER, tensors),
            images=tensors["images"],
            found=tensors["found"],
            errors=tensors["errors"],
            images_abs=tensors.get("images_abs"),
            flags=tuple(map(Flag.model_validate, facts["flags"])),
            verdict=facts["verdict"],
            identification=_or_none(facts["identification"]),
            findings={n: Finding.model_validate(f) for n, f in facts["findings"].items()},
            unnamed=facts["unnamed"],
            grouped=facts["grouped"],
        )


def with_left_out(cell: Cell, privacy: Mapping[str, Any]) -> dict[str, MetricScore]:
    """Stored scores, and of the metrics that nobody asked for why they have none."""
    found = {name: MetricScore.model_validate(score) for name, score in privacy.items()}
    for spec, reason in cell.left_out:
        for suffix in ("", "_abs")[: 1 + cell.hides_signs]:
            found[spec.name + suffix] = unscored(spec, reason)
    return found


def _or_none(values: Mapping[str, Any] | None) -> Identification | None:
    return Identification.model_validate(values) if values else None


def groups_of(run: Run) -> Tensor | None:
    """[batches, b]: the primary private images of each released gradient or update."""
    if run.cell.kind not in OF_BATCHES:
        return None
    return run.release.secrets["sources"][..., 0]


def evidence_of(run: Run) -> Evidence:
    """What claims are compared with."""
    from harness.running.evidence import Evidence

    secret = secret_stream(run.cell.request.seed, run.secret)
    return Evidence(run.truth, run.release, secret, judging(run.cell))


def scores_by_image(run: Run, plan: AttackPlan) -> dict[str, ByImage]:
    """An attack's scores image by image, and what they are held against."""
    judged = run(JudgeStage(run.cell, plan))
    drawn = (judged.misplaced, judged.easier) if judged.shown else ({}, {})
    flat = ({name: each.flatten() for name, each in part.items()} for part in drawn)
    columns = (judged.scores, judged.guesses, *flat)
    told = _told(run, judged)
    nulls = (null_scores(run, told) if told.guesses else run.nulls).per_image
    guessed = {name: lists(nulls[name]) for name in judged.scores}
    scores, guesses, misplaced, easier = map(lists, columns)
    return by_image(dict(judged.privacy), scores, guesses, misplaced, easier, guessed)


def _told(run: Run, judged: Judged) -> Help:
    """What matching this attack's images told of the truth."""
    from harness.scoring.judgement import Help

    return Help(judged.unnamed, groups_of(run) if judged.grouped else None)


def _said(privacy: Mapping[str, MetricScore], found: Tensor, told: Mapping[str, FoundOut]) -> str:
    """The verdict, and of how many targets it says nothing where an attack shows but some."""
    from harness.scoring.judgement import left_out

    notes = left_out(found) if found.any() else ()
    return " ".join([verdict(privacy, told), *(f"{note}." for note in notes)])


def lists(columns: Scores) -> dict[str, list[float]]:
    """Scores as plain numbers."""
    return {name: values.tolist() for name, values in columns.items()}

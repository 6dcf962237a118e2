"""What a cell's attacks give away together: one and its companions, or many and their worst case.

Of many, each counts by itself, and for each image the strongest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.api.errors import CellFailed, NotApplicable
from harness.asking.plan import AttackPlan, Cell, resolved
from harness.running.attack import AttackStage
from harness.running.ceiling import bounded_by, left_by_noise
from harness.running.judge import (
    SCORE,
    Judged,
    JudgeStage,
    Metrics,
    NullsStage,
    judging,
    null_scores,
    scores_by_image,
    with_left_out,
)
from harness.running.prepare import preparing
from harness.running.stage import Output, Stage
from harness.scoring.findings import BY_IMAGES, Finding
from harness.scoring.flags import (
    Answer,
    Flag,
    beyond_noise,
    check_consistency,
    failure_flags,
    far_above,
    first_line,
    sharper,
    still_rising,
)
from harness.scoring.identification import Identification
from harness.scoring.summary import ByImage, MetricScore, Values, strongest, summarise, worst_case
from harness.scoring.verdict import MAIN_METRIC, FoundOut, direction, main_metric, verdict
from harness.store.artifacts import Artifact, below
from harness.store.record import Member, Used

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.running.run import Run
    from harness.scoring.judgement import Help


@dataclass(frozen=True)
class Leakage:
    """What a record says of leakage.

    `complete`: all of it came to an end. What did not is tried again when it is asked for again.
    """

    privacy: Mapping[str, MetricScore] = field(default_factory=dict)
    by_image: Mapping[str, ByImage] = field(default_factory=dict)
    companions: Mapping[str, Mapping[str, MetricScore]] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    identification: Identification | None = None
    findings: Mapping[str, Finding] = field(default_factory=dict)
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    verdict: str = ""
    artifacts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    complete: bool = True


def leakage(run: Run) -> Leakage:
    """Let every attack of the cell at the release, and judge what comes back.

    CellFailed where the attack fails, or all of many do.
    """
    _ = run.nulls
    if run.cell.members:
        return _of_many(run)
    assert run.cell.main is not None
    return _of_one(run, run.cell.main)


def _of_one(run: Run, plan: AttackPlan) -> Leakage:
    """An attack, and the cheap ones that run in every cell; one of those may fail."""
    attack, judge = AttackStage(run.cell, plan), JudgeStage(run.cell, plan)
    answer, judged = run(attack), run(judge)
    companions, failed = _judged(run, {each.attack.name: each for each in run.cell.companions})
    run.peak_memory.update(answer.peak_memory)
    for label, seconds in _seconds_of(run, plan).items():
        run.timing.setdefault(label, seconds)
    name = plan.attack.name
    flags = (*judged.flags, *_too_exact(run, {name: plan}, {name: judged}))
    flags += tuple(_rising(run, plan, name))
    return Leakage(
        privacy=judged.privacy,
        by_image=scores_by_image(run, plan),
        companions={name: each.privacy for name, each in companions.items()},
        identification=judged.identification,
        findings=judged.findings,
        diagnostics=answer.reconstruction.diagnostics,
        flags=(*flags, *failure_flags("companion", failed)),
        verdict=judged.verdict,
        artifacts={
            **answer.learned,
            "attack": run.identity(attack),
            "judge": run.identity(judge),
        },
    )


def _seconds_of(run: Run, plan: AttackPlan) -> dict[str, float]:
    """What the attack took, and what it learned before, whoever made it and when."""
    stages: list[Stage[Any]] = [AttackStage(run.cell, plan), *preparing(run, plan)]
    return {
        stage.label: round(run.store.facts(stage.name, stage.key)["own_seconds"], 3)
        for stage in stages
        if run.store.has(stage.name, stage.key)
    }


def _judged(
    run: Run, plans: Mapping[str, AttackPlan]
) -> tuple[dict[str, Judged], dict[str, CellFailed]]:
    """Attacks by name, and why some did not come to an end."""
    judged: dict[str, Judged] = {}
    failed: dict[str, CellFailed] = {}
    for name, plan in plans.items():
        try:
            run(AttackStage(run.cell, plan))
            judged[name] = run(JudgeStage(run.cell, plan))
        except CellFailed as error:
            failed[name] = error
    return judged, failed


def _of_many(run: Run) -> Leakage:
    """Every member, and the worst case over those that came to an end."""
    cell = run.cell
    done, failed = _judged(run, cell.members)
    if not done:
        reasons = "; ".join(f"{name}: {first_line(error)}" for name, error in failed.items())
        raise CellFailed(f"no attack of '{cell.attack.name}' came to an end: {reasons}")
    stage = WorstStage(cell, {name: cell.members[name] for name in done})
    worst = run(stage)
    artifacts: dict[str, Mapping[str, Any]] = {"judge": run.identity(stage)}
    for name, plan in stage.members.items():
        answer = run(AttackStage(cell, plan))
        run.peak_memory.update(answer.peak_memory)
        artifacts.update(answer.learned)
        artifacts[f"attack {name}"] = run.identity(AttackStage(cell, plan))
        artifacts[f"judge {name}"] = run.identity(JudgeStage(cell, plan))
    told = {name: _told(judged) for name, judged in done.items()}
    flags = [*_across(run, done, worst.privacy), *_too_exact(run, stage.members, done)]
    return Leakage(
        privacy=worst.privacy,
        members=_members(run, done, failed, worst.strongest),
        flags=(*flags, *failure_flags("member", failed)),
        verdict=verdict(worst.privacy, told),
        artifacts=artifacts,
        complete=all(isinstance(error, NotApplicable) for error in failed.values()),
    )


@dataclass(frozen=True)
class Worst:
    """The worst case over attacks: by metric, and by image the one that came nearest to it."""

    privacy: Mapping[str, MetricScore]
    scores: Mapping[str, Tensor]
    images: Tensor
    strongest: list[str]
    """"" where no attack showed any image."""


@dataclass(frozen=True, eq=False)
class WorstStage(Stage[Worst]):
    """The worst case over the attacks that came to an end, by name."""

    name = "judge"
    members: Mapping[str, AttackPlan]

    @property
    def label(self) -> str:
        """By the name of the whole."""
        return f"{self.name} {self.cell.attack.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """What each of them gives away."""
        return tuple(JudgeStage(self.cell, plan) for plan in self.members.values())

    def facts(self) -> dict[str, Any]:
        """Their names."""
        return {"names": list(self.members)}

    def make(self, run: Run, progress: Progress) -> Artifact:
        """The worst case of every metric, and of each image the best reconstruction."""
        import torch

        done = {name: run(JudgeStage(self.cell, plan)) for name, plan in self.members.items()}
        values = self._values(run, done)
        stream = judging(self.cell).stream(use="worst")
        privacy = _unavailable(self.cell, done) | summarise(values, stream.stream(use="bootstrap"))
        tensors = {f"{SCORE}{name}": torch.from_numpy(each.attack) for name, each in values.items()}
        who = self._strongest(run, done, main_metric(privacy))
        facts = {
            "privacy": {name: score.model_dump(mode="json") for name, score in privacy.items()},
            "strongest": who,
            "nulls": NullsStage.of(self.cell).key,
        }
        return Artifact({**tensors, "images": _chosen(done, who)}, facts)

    def read(self, stored: Artifact) -> Worst:
        """The worst case."""
        scores, facts = below(SCORE, stored.tensors), stored.facts
        privacy = with_left_out(self.cell, facts["privacy"])
        return Worst(privacy, scores, stored.tensors["images"], facts["strongest"])

    def _values(self, run: Run, done: Mapping[str, Judged]) -> dict[str, Values]:
        """By metric, the worst case over attacks and that over nulls."""
        metrics, targets = run(Metrics.of(self.cell)), run.truth.targets
        values = {}
        for name, named in null_scores(run, _most_help(run, done)).per_image.items():
            spec, metric = metrics[name.removesuffix("_abs")]
            scores = _scores(done, name)
            if scores and not isinstance(metric, str):
                wrong = {who: each.misplaced[name] for who, each in done.items() if each.shown}
                draws = range(len(next(iter(wrong.values()), ())))
                lucky = [{who: each[draw] for who, each in wrong.items()} for draw in draws]
                easier = [each.easier[name] for each in done.values() if each.shown]
                told = (spec.leaks_more, spec.unit, metric.chance(targets))
                values[name] = worst_case(scores, named, lucky, easier, *told)
        return values

    def _strongest(self, run: Run, done: Mapping[str, Judged], metric: str | None) -> list[str]:
        """The member that came nearest to each image."""
        scores = _scores(done, metric) if metric else {}
        if metric is None or not scores:
            return [""] * run.truth.targets
        spec, _ = run(Metrics.of(self.cell))[metric.removesuffix("_abs")]
        return strongest(scores, spec.leaks_more)[1]


def _most_help(run: Run, done: Mapping[str, Judged]) -> Help:
    """The most help that matching gave any member."""
    from harness.running.judge import groups_of
    from harness.scoring.judgement import NO_HELP, Help

    whole = max((each.unnamed for each in done.values() if not each.grouped), default=0)
    if whole:
        return Help(whole)
    within = max(each.unnamed for each in done.values())
    return Help(within, groups_of(run)) if within else NO_HELP


def _scores(done: Mapping[str, Judged], metric: str) -> dict[str, Tensor]:
    return {name: each.scores[metric] for name, each in done.items() if metric in each.scores}


def _unavailable(cell: Cell, done: Mapping[str, Judged]) -> dict[str, MetricScore]:
    """Metrics that no member was scored by, with the reason of the first."""
    first = next(iter(done.values())).privacy
    wanted = {spec.name for spec in cell.metrics}
    return {
        name: score
        for name, score in first.items()
        if score.unavailable and name.removesuffix("_abs") in wanted
    }


def _chosen(done: Mapping[str, Judged], who: list[str]) -> Tensor:
    """[targets, c, h, w]: of each image what the strongest member made of it."""
    import torch

    chosen = next(iter(done.values())).images.clone()
    for name, each in done.items():
        mine = torch.tensor([winner == name for winner in who])
        chosen[mine] = each.images[mine]
    return chosen


def _members(
    run: Run, done: Mapping[str, Judged], failed: Mapping[str, CellFailed], who: list[str]
) -> dict[str, Member]:
    cell, known = run.cell, run.registry
    found = {name: _member(run, name, each, who.count(name)) for name, each in done.items()}
    for name, error in failed.items():
        attack = Used.of(known, "attacks", cell.members[name].attack)
        found[name] = Member(status=error.status, error=first_line(error), attack=attack)
    for name, reason in cell.excluded.items():
        attack = Used.of(known, "attacks", resolved("attacks", name, cell.request.preset, known))
        found[name] = Member(status="not_applicable", error=reason, attack=attack)
    return dict(sorted(found.items()))


def _member(run: Run, name: str, judged: Judged, best_of: int) -> Member:
    plan = run.cell.members[name]
    return Member(
        status="ok",
        attack=Used.of(run.registry, "attacks", plan.attack),
        channels_used=tuple(sorted(plan.channels)),
        privacy=dict(judged.privacy),
        identification=judged.identification,
        findings=dict(judged.findings),
        diagnostics=dict(run(AttackStage(run.cell, plan)).reconstruction.diagnostics),
        flags=judged.flags,
        strongest_of=best_of,
    )


def _across(run: Run, done: Mapping[str, Judged], privacy: Mapping[str, MetricScore]) -> list[Flag]:
    name = main_metric(privacy)
    score = privacy[name] if name else None
    sign = -1 if score and score.leaks_more == "lower" else 1
    answers = [
        _answer(text, run.cell.members[text], each, name, sign) for text, each in done.items()
    ]
    flags = check_consistency(
        answers,
        shown=score is not None and direction(score) > 0,
        unit=score.unit if score else "",
        stream=judging(run.cell),
    )
    for text in done:
        flags += _rising(run, run.cell.members[text], text)
    return flags


def _answer(text: str, plan: AttackPlan, each: Judged, metric: str | None, sign: int) -> Answer:
    scores = each.scores.get(metric) if metric else None
    claims = bool(each.findings.keys() - BY_IMAGES)
    spec = plan.attack.spec
    return Answer(
        attack=text,
        channels=plan.channels,
        linear=spec.linear,
        scores=None if scores is None else sign * scores,
        errors=each.errors if each.shown else None,
        identification=each.identification,
        after_images=not (claims or spec.companion),
    )


def _too_exact(run: Run, plans: Mapping[str, AttackPlan], done: Mapping[str, Judged]) -> list[Flag]:
    """A flag for each attack that answers more exactly than noise allows who is not told more."""
    suspects = {
        name: judged
        for name, judged in done.items()
        if MAIN_METRIC in judged.scores
        and far_above(judged.scores[MAIN_METRIC], judged.guesses[MAIN_METRIC])
        and bounded_by(run.cell, plans[name])
    }
    left = left_by_noise(run) if suspects else None
    if left is None:
        return []
    return [
        flag
        for name, judged in suspects.items()
        for flag in beyond_noise(
            name, judged.scores[MAIN_METRIC], judged.guesses[MAIN_METRIC], left
        )
    ]


def _rising(run: Run, plan: AttackPlan, name: str) -> list[Flag]:
    """A flag where twice the effort brings more; one where that could not be found out."""
    more = plan.doubled if run.cell.twice else None
    if more is None:
        return []
    try:
        after = run(JudgeStage(run.cell, more))
    except CellFailed as error:
        return failure_flags("twice", {f"'{name}' at twice its effort": error})
    before, effort = run(JudgeStage(run.cell, plan)), plan.effort
    once, twice = before.identification, after.identification
    told = sharper(name, effort, once, twice) if once and twice else []
    return told + _nearer(run, name, effort, before, after)


def _nearer(run: Run, name: str, effort: str, before: Judged, after: Judged) -> list[Flag]:
    metric = main_metric(before.privacy)
    if metric is None:
        return []
    score = before.privacy[metric]
    sign = -1 if score.leaks_more == "lower" else 1
    once, twice = (sign * each.scores[metric] for each in (before, after))
    return still_rising(name, effort, once, twice, score.unit, judging(run.cell))


def _told(judged: Judged) -> FoundOut:
    """What one attack found out besides images."""
    claimed = {name: each for name, each in judged.findings.items() if name not in BY_IMAGES}
    return FoundOut(judged.identification, claimed)

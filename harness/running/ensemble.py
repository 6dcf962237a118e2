"""Many attacks on one release: each by itself, and for each image the strongest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.api import CellFailed
from harness.api.errors import CellTimedOut, NotApplicable
from harness.asking.plan import AttackPlan, one_attack
from harness.running.attacker import Attacker
from harness.running.codec import SCORE, scores_of
from harness.running.context import Context
from harness.running.court import Court, privacy_of
from harness.running.judge import NO_HELP, Help
from harness.running.keys import plugin_source
from harness.running.owner import Owner
from harness.scoring.by_image import strongest, worst_case
from harness.scoring.consistency import Answer, check_consistency, sharper, still_rising
from harness.scoring.findings import BY_IMAGES, Finding
from harness.scoring.flag import Flag
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore, Values, summarise
from harness.scoring.verdict import FoundOut, direction, main_metric, verdict
from harness.store import Artifact
from harness.store.record import Member, Used


@dataclass(frozen=True)
class Done:
    """A member that came to an end."""

    plan: AttackPlan
    attacked: Artifact
    judged: Artifact

    @property
    def privacy(self) -> dict[str, MetricScore]:
        """Its scores."""
        return privacy_of(self.judged)

    @property
    def shown(self) -> bool:
        """Whether it showed any images."""
        return bool(self.judged.tensors["found"].any())

    def scores(self, metric: str) -> Tensor | None:
        """[targets] of one metric, if it has any."""
        return self.judged.tensors.get(f"{SCORE}{metric}")


class Ensemble:
    """The members of a cell's attack at work."""

    def __init__(self, context: Context, owner: Owner, attacker: Attacker, court: Court) -> None:
        self.context = context
        self.cell = context.cell
        self.owner = owner
        self.attacker = attacker
        self.court = court
        self.failed: dict[str, CellFailed] = {}

    def summed_up(self) -> dict[str, Any]:
        """What the record says of them; CellFailed where none came to an end."""
        done = self._run()
        if not done:
            reasons = "; ".join(f"{name}: {first_line(e)}" for name, e in self.failed.items())
            raise CellFailed(f"no attack of '{self.cell.attack.name}' came to an end: {reasons}")
        worst = self._worst(done)
        privacy = privacy_of(worst)
        return {
            "privacy": privacy,
            "members": self._members(done, worst),
            "flags": (*self._flags(done, privacy), *self._failures()),
            "verdict": verdict(privacy, told_by(done)),
            "artifacts": self._artifacts(done),
        }

    @property
    def complete(self) -> bool:
        """Whether every member that can be came to an end."""
        return all(isinstance(error, NotApplicable) for error in self.failed.values())

    def _artifacts(self, done: Mapping[str, Done]) -> dict[str, dict[str, Any]]:
        """The worst case, and what every member made."""
        keys, store = self.context.keys, self.context.store
        found = {"judge": store.identity("judge", keys.worst_of(_plans(done)))}
        for name, each in done.items():
            found |= self.attacker.made(each.plan)
            found[f"attack {name}"] = store.identity("attack", keys.attack_of(each.plan))
            found[f"judge {name}"] = store.identity("judge", keys.judge_of(each.plan))
        return found

    def _run(self) -> dict[str, Done]:
        done = {}
        for name, plan in self.cell.members.items():
            try:
                judged = self.court.judged(plan)
            except CellFailed as error:
                self.failed[name] = error
                continue
            attacked = self.attacker.attacked(plan)
            self.context.peak_memory.update(attacked.facts["peak_memory"])
            done[name] = Done(plan, attacked, judged)
        return done

    def _worst(self, done: Mapping[str, Done]) -> Artifact:
        key = self.context.keys.worst_of(_plans(done))
        label = f"judge {self.cell.attack.name}"
        return self.context.obtain("judge", key, label, lambda _: self._sum(done), lambda: None)

    def _sum(self, done: Mapping[str, Done]) -> Artifact:
        """The worst case of every metric, and of each image the best reconstruction."""
        values = self._values(done)
        stream = self.court.stream.stream(use="worst")
        privacy = _unavailable(done) | summarise(values, stream.stream(use="bootstrap"))
        tensors = {f"{SCORE}{name}": torch.from_numpy(each.attack) for name, each in values.items()}
        who = self._strongest(done, main_metric(privacy))
        facts = {
            "privacy": {name: score.model_dump(mode="json") for name, score in privacy.items()},
            "strongest": who,
        }
        return Artifact({**tensors, "images": _chosen(done, who)}, facts)

    def _told(self, done: Mapping[str, Done]) -> Help:
        """The most help that matching any member's images took."""
        facts = [each.judged.facts for each in done.values()]
        whole = max((f["unnamed"] for f in facts if not f["grouped"]), default=0)
        if whole:
            return Help(whole)
        within = max(f["unnamed"] for f in facts)
        return Help(within, self.owner.batches()) if within else NO_HELP

    def _values(self, done: Mapping[str, Done]) -> dict[str, Values]:
        """By metric, the worst case over attacks and that over nulls."""
        nulls = self.court.nulls(self._told(done)).per_image
        misplaced = [
            scores_of(m) for each in done.values() if (m := self.court.misplaced(each.plan))
        ]
        values = {}
        for name, named in nulls.items():
            spec, metric = self.court.metrics[name.removesuffix("_abs")]
            scores = _scores(done, name)
            if scores and not isinstance(metric, str):
                chance = metric.chance(self.owner.targets)
                guessed = [*named.values(), *(scores[name] for scores in misplaced)]
                values[name] = worst_case(scores, guessed, spec.leaks_more, spec.unit, chance)
        return values

    def _strongest(self, done: Mapping[str, Done], metric: str | None) -> list[str]:
        """The member that came nearest to each image; "" where none showed any."""
        scores = _scores(done, metric) if metric else {}
        if metric is None or not scores:
            return [""] * self.owner.targets
        spec, _ = self.court.metrics[metric.removesuffix("_abs")]
        return strongest(scores, spec.leaks_more)[1]

    def _members(self, done: Mapping[str, Done], worst: Artifact) -> dict[str, Member]:
        who = worst.facts["strongest"]
        found = {name: self._member(each, who.count(name)) for name, each in done.items()}
        for name, error in self.failed.items():
            used = self._used(self.cell.members[name])
            found[name] = Member(status=_status(error), error=first_line(error), attack=used)
        for name, reason in self.cell.excluded.items():
            used = self._named(name)
            found[name] = Member(status="not_applicable", error=reason, attack=used)
        return dict(sorted(found.items()))

    def _member(self, each: Done, best_of: int) -> Member:
        facts = each.judged.facts
        return Member(
            status="ok",
            attack=self._used(each.plan),
            channels_used=tuple(sorted(each.plan.channels)),
            privacy=each.privacy,
            identification=facts["identification"],
            findings=facts["findings"],
            diagnostics=each.attacked.facts["diagnostics"],
            flags=tuple(map(Flag.model_validate, facts["flags"])),
            strongest_of=best_of,
        )

    def _used(self, plan: AttackPlan) -> Used:
        attack = plan.attack
        return Used(
            name=attack.name,
            version=attack.spec.version,
            distribution=self.context.registry.origin("attacks", attack.name).distribution,
            source_sha256=plugin_source(attack),
            config=attack.config.model_dump(mode="json"),
        )

    def _named(self, text: str) -> Used:
        """A member that cannot be, with the config it was declared with."""
        attack = one_attack(text, self.cell.request.preset, self.context.registry)
        return self._used(AttackPlan(attack, self.cell.kind, frozenset()))

    def _flags(self, done: Mapping[str, Done], privacy: Mapping[str, MetricScore]) -> list[Flag]:
        name = main_metric(privacy)
        score = privacy[name] if name else None
        sign = -1 if score and score.leaks_more == "lower" else 1
        answers = [_answer(text, each, name, sign) for text, each in done.items()]
        flags = check_consistency(
            answers,
            shown=score is not None and direction(score) > 0,
            unit=score.unit if score else "",
            stream=self.court.stream,
        )
        for text, each in done.items():
            flags += rising(self.court, each.plan, text)
        return flags

    def _failures(self) -> list[Flag]:
        return [
            Flag(name="member_failed", message=f"{name}: {first_line(error)}")
            for name, error in self.failed.items()
            if not isinstance(error, NotApplicable)
        ]


def rising(court: Court, plan: AttackPlan, name: str) -> list[Flag]:
    """A flag where twice the effort brings more; one where that could not be found out."""
    more = plan.doubled if court.cell.twice else None
    if more is None:
        return []
    try:
        after = court.judged(more)
    except CellFailed as error:
        message = f"'{name}' at twice its effort: {first_line(error)}"
        return [Flag(name="twice_failed", message=message)]
    before, effort = court.judged(plan), plan.effort
    found = (_identification(before), _identification(after))
    told = sharper(name, effort, found[0], found[1]) if found[0] and found[1] else []
    return told + _nearer(court, name, effort, before, after)


def _nearer(court: Court, name: str, effort: str, before: Artifact, after: Artifact) -> list[Flag]:
    privacy = privacy_of(before)
    metric = main_metric(privacy)
    if metric is None:
        return []
    score = privacy[metric]
    sign = -1 if score.leaks_more == "lower" else 1
    once, twice = (sign * each.tensors[f"{SCORE}{metric}"] for each in (before, after))
    return still_rising(name, effort, once, twice, score.unit, court.stream)


def _answer(text: str, each: Done, metric: str | None, sign: int) -> Answer:
    scores = each.scores(metric) if metric else None
    claims = bool(each.judged.facts["findings"].keys() - BY_IMAGES)
    spec = each.plan.attack.spec
    return Answer(
        attack=text,
        channels=each.plan.channels,
        linear=spec.linear,
        scores=None if scores is None else sign * scores,
        errors=each.judged.tensors["errors"] if each.shown else None,
        identification=_identification(each.judged),
        after_images=not (claims or spec.companion),
    )


def _identification(judged: Artifact) -> Identification | None:
    found = judged.facts["identification"]
    return Identification.model_validate(found) if found else None


def told_by(done: Mapping[str, Done]) -> dict[str, FoundOut]:
    """What each attack found out besides images."""
    return {name: told(each.judged) for name, each in done.items()}


def told(judged: Artifact) -> FoundOut:
    """What one attack found out besides images."""
    findings = judged.facts["findings"]
    claimed = {n: Finding.model_validate(f) for n, f in findings.items() if n not in BY_IMAGES}
    return FoundOut(_identification(judged), claimed)


def first_line(error: Exception) -> str:
    """An error's message without its log."""
    return str(error).partition("\n")[0]


def _status(error: CellFailed) -> str:
    if isinstance(error, NotApplicable):
        return "not_applicable"
    return "timeout" if isinstance(error, CellTimedOut) else "failed"


def _plans(done: Mapping[str, Done]) -> dict[str, AttackPlan]:
    return {name: each.plan for name, each in done.items()}


def _scores(done: Mapping[str, Done], metric: str) -> dict[str, Tensor]:
    named = {name: each.scores(metric) for name, each in done.items()}
    return {name: scores for name, scores in named.items() if scores is not None}


def _unavailable(done: Mapping[str, Done]) -> dict[str, MetricScore]:
    """Metrics that no member was scored by, with the reason of the first."""
    first = next(iter(done.values())).privacy
    return {name: score for name, score in first.items() if score.unavailable}


def _chosen(done: Mapping[str, Done], who: list[str]) -> Tensor:
    """[targets, c, h, w]: of each image what the strongest member made of it."""
    some = next(iter(done.values())).judged.tensors["images"]
    chosen = some.clone()
    for name, each in done.items():
        mine = torch.tensor([winner == name for winner in who])
        chosen[mine] = each.judged.tensors["images"][mine]
    return chosen

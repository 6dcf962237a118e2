"""Many attacks on one release: each by itself, and for each image the strongest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.api import CellFailed
from harness.api.errors import CellTimedOut
from harness.checks import Answer, Flag, check_consistency, still_rising
from harness.engines.attacker import Attacker
from harness.engines.codec import SCORE
from harness.engines.context import Context
from harness.engines.court import Court, privacy_of
from harness.engines.owner import Owner
from harness.keys import plugin_source
from harness.plan import AttackPlan, one_attack
from harness.record import Member, Used
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore, summarise
from harness.scoring.verdict import direction, main_metric, verdict
from harness.scoring.worst import strongest, worst_case
from harness.store import Artifact


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
            reasons = "; ".join(f"{name}: {error}" for name, error in self.failed.items())
            raise CellFailed(f"no attack of '{self.cell.attack.name}' came to an end: {reasons}")
        worst = self._worst(done)
        privacy = privacy_of(worst)
        found = _surest(done)
        key = self.context.keys.worst_of(each.plan for each in done.values())
        return {
            "privacy": privacy,
            "members": self._members(done, worst),
            "identification": found,
            "flags": (*self._flags(done, privacy), *self._failures()),
            "verdict": verdict(privacy, found),
            "artifacts": {"judge": self.context.store.identity("judge", key)},
        }

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
        key = self.context.keys.worst_of(each.plan for each in done.values())
        label = f"judge {self.cell.attack.name}"
        return self.context.obtain("judge", key, label, lambda _: self._sum(done), lambda: None)

    def _sum(self, done: Mapping[str, Done]) -> Artifact:
        """The worst case of every metric, and of each image the best reconstruction."""
        guesses = max(each.judged.facts["unnamed"] for each in done.values())
        nulls = self.court.nulls(guesses).per_image
        specs = {spec.name: (spec, metric) for spec, metric in self.court.metrics.values()}
        values, privacy = {}, _unavailable(done)
        for name in nulls:
            scores = _scores(done, name)
            spec, metric = specs[name.removesuffix("_abs")]
            if scores and not isinstance(metric, str):
                chance = metric.chance(self.owner.targets)
                values[name] = worst_case(scores, nulls[name], spec.leaks_more, spec.unit, chance)
        stream = self.court.stream.stream(use="worst")
        privacy |= summarise(values, stream.stream(use="bootstrap"))
        tensors = {f"{SCORE}{name}": torch.from_numpy(each.attack) for name, each in values.items()}
        who = self._strongest(done, main_metric(privacy))
        facts = {
            "privacy": {name: score.model_dump(mode="json") for name, score in privacy.items()},
            "strongest": who,
        }
        return Artifact({**tensors, "images": _chosen(done, who)}, facts)

    def _strongest(self, done: Mapping[str, Done], metric: str | None) -> list[str]:
        """The member that came nearest to each image; "" where none showed any."""
        scores = _scores(done, metric) if metric else {}
        if metric is None or not scores:
            return [""] * self.owner.targets
        spec, _ = self.court.metrics[metric]
        return strongest(scores, spec.leaks_more)[1]

    def _members(self, done: Mapping[str, Done], worst: Artifact) -> dict[str, Member]:
        who = worst.facts["strongest"]
        found = {name: self._member(each, who.count(name)) for name, each in done.items()}
        for name, error in self.failed.items():
            status = "timeout" if isinstance(error, CellTimedOut) else "failed"
            plan = self.cell.members[name]
            reason = str(error).partition("\n")[0]
            found[name] = Member(status=status, error=reason, attack=self._used(plan))
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
            Flag(name="member_failed", message=f"{name}: {str(error).partition(chr(10))[0]}")
            for name, error in self.failed.items()
        ]


def rising(court: Court, plan: AttackPlan, name: str) -> list[Flag]:
    """A flag where twice the effort brings more; one where that could not be found out."""
    more = plan.doubled if court.cell.twice else None
    if more is None:
        return []
    try:
        after = court.judged(more)
    except CellFailed as error:
        reason = str(error).partition("\n")[0]
        return [Flag(name="twice_failed", message=f"'{name}' at twice its effort: {reason}")]
    before = court.judged(plan)
    privacy = privacy_of(before)
    metric = main_metric(privacy)
    if metric is None:
        return []
    score = privacy[metric]
    sign = -1 if score.leaks_more == "lower" else 1
    once, twice = (sign * each.tensors[f"{SCORE}{metric}"] for each in (before, after))
    effort = plan.attack.spec.effort
    return still_rising(name, effort, once, twice, score.unit, court.stream)


def _answer(text: str, each: Done, metric: str | None, sign: int) -> Answer:
    scores = each.scores(metric) if metric else None
    shown = bool(each.judged.tensors["found"].any())
    return Answer(
        attack=text,
        channels=each.plan.channels,
        linear=each.plan.attack.spec.linear,
        scores=None if scores is None else sign * scores,
        errors=each.judged.tensors["errors"] if shown else None,
        identification=_identification(each),
    )


def _identification(each: Done) -> Identification | None:
    found = each.judged.facts["identification"]
    return Identification.model_validate(found) if found else None


def _surest(done: Mapping[str, Done]) -> Identification | None:
    """The identification that ranks most images first."""
    found = [each for each in map(_identification, done.values()) if each]
    return max(found, key=lambda each: each.top1, default=None)


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

"""One defense against one attack, as a board shows it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING

from harness.asking.request import Request
from harness.results.leading import counts
from harness.results.seeds import combined, number, rounded
from harness.results.trust import flags_of, speaking_against
from harness.results.view import CellStatus, CellView, Leak, Standing
from harness.scoring.findings import BY_IMAGES, Finding

if TYPE_CHECKING:
    from harness.results.groups import Group
    from harness.scoring.identification import Identification
    from harness.scoring.summary import MetricScore
    from harness.store.record import RunRecord

NOT_RUN = "not run yet"
ALWAYS = ("defense", "attack", "dataset")
"""Options that a command names even where they have their default."""


def cell_view(group: Group, standing: Standing) -> CellView:
    """A cell over its seeds; `standing` is that of its attack's controls."""
    first = next(iter([*group.ok, *group.records]), None)
    flags = flags_of(group)
    status = _status(group)
    return CellView(
        attack=group.attack,
        threat_model=group.threat_model,
        release_kind=first.release_kind if first else "",
        status=status,
        reason=_reason(group, status),
        seeds=tuple(r.request.seed for r in group.ok),
        records=tuple(record.id for record in group.records),
        leaks=_leaks(group.counted),
        findings=tuple(_findings(first)) if first else (),
        flags=tuple(flags),
        verified=status == "ok" and standing == "passed" and not speaking_against(flags),
        gallery=next((kept.gallery for kept in group.kept if kept.gallery), None),
        commands=tuple(
            command(group.cell.request.model_copy(update={"seed": seed})) for seed in group.seeds
        ),
        seconds=_seconds(group.ok),
        commit=str(first.code.get("commit", "")) if first else "",
        origin=group.origin or next((kept.origin for kept in group.kept), ""),
        homes={kept.record.id: kept.origin for kept in group.kept if kept.origin},
    )


def _status(group: Group) -> CellStatus:
    """That of a seed with a result; else of the first seed."""
    if group.ok:
        return "ok"
    return group.records[0].status if group.records else "missing"


def _reason(group: Group, status: CellStatus) -> str:
    if status == "ok":
        return ""
    return (group.records[0].error or "") if group.records else NOT_RUN


def _leaks(records: Sequence[RunRecord]) -> dict[str, Leak]:
    """By metric, the means over seeds of what the records say."""
    scored: dict[str, list[tuple[int, MetricScore]]] = {}
    for record in records:
        for name, score in record.privacy.items():
            if counts(name) and score.mean is not None:
                scored.setdefault(name, []).append((record.request.seed, score))
    return {name: _leak(name, each) for name, each in sorted(scored.items())}


def _leak(name: str, scored: Sequence[tuple[int, MetricScore]]) -> Leak:
    scores = [score for _, score in scored]
    first = scores[0]
    sign = 1 if first.leaks_more == "higher" else -1
    worst = [score.worst for score in scores if score.worst is not None]
    return Leak(
        metric=name,
        unit=first.unit,
        leaks_more=first.leaks_more,
        mean=combined([number(s.mean or 0.0, s.ci) for s in scores]),
        null=combined([number(s.null or 0.0) for s in scores]).value,
        gain=combined([number(s.gain or 0.0, s.gain_ci) for s in scores]),
        worst=rounded(max(worst, key=lambda value: sign * value)) if worst else None,
        seeds=tuple(seed for seed, _ in scored),
    )


def _findings(record: RunRecord) -> list[str]:
    """What a record found out besides images, in a sentence each."""
    claimed: Mapping[str, Finding] = record.findings
    told = [_finding(n, f) for n, f in sorted(claimed.items()) if n not in BY_IMAGES]
    return [*([_identified(record.identification)] if record.identification else []), *told]


def _finding(name: str, found: Finding) -> str:
    """`weight error 0.01 (0.009 to 0.011), without the release 0.1`."""
    ci = f" ({found.ci[0]:.3g} to {found.ci[1]:.3g})" if found.ci else ""
    unit = f" {found.unit}" if found.unit else ""
    guess = "" if found.chance is None else f", without the release {found.chance:.3g}"
    return f"{name.replace('_', ' ')} {found.value:.3g}{unit}{ci}{guess}"


def _identified(found: Identification) -> str:
    return (
        f"identifies {found.top1:.1%} of {found.n} {found.asked} first among {found.candidates} "
        f"candidates (chance {found.top1_chance:.1%}), AUC {found.auc:.3f}"
    )


def _seconds(records: Sequence[RunRecord]) -> float | None:
    """What the attack took, with all that it prepared; the mean over seeds."""
    taken = [
        sum(
            record.timing.get(f"{part} {record.attack.name}", 0.0) for part in ("prepare", "attack")
        )
        for record in records
    ]
    mean = sum(taken) / len(taken) if taken else inf
    return rounded(mean) if isfinite(mean) else None


def command(request: Request) -> str:
    """The command that evaluates such a cell anew, ready to be pasted."""
    given = request.model_dump(mode="json", exclude_defaults=True, exclude={"device"})
    values = {**{name: getattr(request, name) for name in ALWAYS}, **given}
    words = [word for name, value in values.items() for word in _words(name, value)]
    return shlex.join(["harness", "evaluate", *words])


def _words(name: str, value: object) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]

"""From a board's records to its view. Pure: the same records give the same view."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from harness.asking.registry import registry
from harness.asking.request import Request, parse_stack
from harness.boards.answering import MISSING
from harness.boards.protocol import Board, Claim, Track
from harness.results.bracket import bracket, budget, unbounded
from harness.results.identified import identified
from harness.results.learned import curve_of, over_seeds, retained, size_of
from harness.results.material import Group, Line, Material, lines
from harness.results.numbers import combined, number, rounded
from harness.results.ranks import attack_views, ranked
from harness.results.strongest import Cases, intervals, leaks, worst_cases
from harness.results.trust import Controls, flags_of, row_flags, speaking_against
from harness.results.view import (
    BoardView,
    CellStatus,
    CellView,
    ClaimView,
    Leak,
    Notice,
    Number,
    RowView,
    Standing,
    TrackView,
)
from harness.scoring.findings import BY_IMAGES, Finding
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import ABSOLUTE
from harness.store.record import RunRecord

ALWAYS = ("defense", "attack", "dataset")
"""Options that a command names even where they have their default."""
ACCURACY = "accuracy"
"""A claim's metric that is not of an attack."""


@dataclass(frozen=True)
class Shown:
    """A line of a board, its worst cases, and how it is seen."""

    line: Line
    cases: Cases
    view: RowView


def board_view(material: Material) -> BoardView:
    """All of a board, from its protocol, its records and the reports on its attacks' controls.

    UsageError where it ranks by a metric that nobody declares.
    """
    board, controls = material.board, Controls(material.controls)
    scored = {n.removesuffix(ABSOLUTE) for kept in material.kept for n in kept.record.privacy}
    board.check_ranking(scored | {*registry().entries["metrics"]})
    every = lines(material)
    rows = shown(every, controls, board.ranking, every)
    return BoardView(
        name=board.name,
        title=board.title,
        about=board.about.strip(),
        status=board.status,
        stage=board.stage,
        dataset=str(board.options.get("dataset", Request().dataset)),
        metrics=scored_by(board.ranking, rows),
        main_metric=board.ranking[0],
        tracks=tuple(_track(board, track, rows, controls) for track in board.tracks),
        claims=tuple(_claim_view(claim, rows) for claim in board.claims),
        frozen=dict(board.frozen),
        records=len({each.record.id for each in material.kept}),
        missing=sum(_missing((*each.line.groups, *each.line.alone)) for each in rows),
        again=sum(_again((*each.line.groups, *each.line.alone)) for each in rows),
        signer=material.signer,
    )


def shown(
    found: Iterable[Line],
    controls: Controls,
    metrics: Collection[str],
    among: Sequence[Line],
) -> list[Shown]:
    """Every line with its worst cases by these metrics, and as it is seen; not yet ranked.

    `among` are the board's lines: what is named in fewer rounds is named in more.
    """
    cases = [(line, worst_cases(line.groups, metrics)) for line in found]
    sure = intervals(own for _, own in cases)
    views = (_row_view(line, leaks(own, sure), controls, metrics) for line, own in cases)
    return [
        Shown(line, own, view.model_copy(update={"identified": identified(line, among)}))
        for (line, own), view in zip(cases, views, strict=True)
    ]


def scored_by(metrics: Iterable[str], rows: Iterable[Shown]) -> tuple[str, ...]:
    """Those of the metrics that any row was scored by."""
    views = [row.view for row in rows]
    return tuple(name for name in metrics if any(view.leak(name) for view in views))


def _track(board: Board, track: Track, rows: Sequence[Shown], controls: Controls) -> TrackView:
    own = [each for each in rows if each.line.track == track.name]
    metrics = scored_by(board.ranking, own)
    return TrackView(
        name=track.name,
        title=track.title,
        about=track.about.strip(),
        rows=tuple(ranked([each.view for each in own], metrics)),
        attacks=tuple(attack_views(own, controls, metrics)),
        protocol={name: str(value) for name, value in {**board.options, **track.options}.items()},
    )


def _row_view(
    line: Line, leaked: dict[str, Leak], controls: Controls, metrics: Collection[str]
) -> RowView:
    """A row without its rank."""
    standing = [controls.of(group.kept) for group in line.groups]
    pairs = zip(line.groups, standing, strict=True)
    cells = [_cell_view(group, state, metrics) for group, state in pairs]
    own = [group for group in line.groups if group.origin in ("", line.origin)]
    flags = [*row_flags(line, cells, standing, leaked), *_seeds_missing(own)]
    rounds, private = size_of(line)
    curve = curve_of(line, controls)
    learned = next(e for e in curve if (e.rounds, e.private_size) == (rounds, private))
    return RowView(
        track=line.track,
        defense=line.defense,
        accuracy=learned.accuracy,
        reference=learned.reference,
        retained=retained(line),
        chance=learned.chance,
        seeds=learned.seeds,
        learners=learned.learners,
        curve=tuple(curve),
        bracket=bracket(line.groups),
        unbounded=unbounded(line.groups),
        budget=budget((*line.groups, *line.beside, *line.alone)),
        leaks=leaked,
        cells=tuple(cells),
        flags=tuple(flags),
        verified=bool(leaked) and not flags,
        protected=_protects(line.defense),
        missing=_missing(own),
        again=_again((*own, *line.alone)),
        origin=line.origin,
        older=_older(line),
    )


def _older(line: Line) -> tuple[str, ...]:
    """Plugins of any of a row's records whose source, version or options are others by now."""
    groups = (*line.groups, *line.beside, *line.alone)
    every = [kept for group in groups for kept in group.kept]
    return tuple(sorted({name for kept in every for name in (*kept.older, *kept.again)}))


def _missing(groups: Iterable[Group]) -> int:
    """Cells without a record."""
    return sum(kept is None for group in groups for kept in group.seeds.values())


def _again(groups: Iterable[Group]) -> int:
    """Cells with a record of versions or options that have moved on."""
    return sum(bool(kept.again) for group in groups for kept in group.kept)


def _seeds_missing(groups: Iterable[Group]) -> Iterator[Notice]:
    """Attacks that have run on some of their seeds only."""
    lacking = [group.attack for group in groups if group.records and _missing([group])]
    if lacking:
        message = f"not run yet on every seed: {', '.join(dict.fromkeys(lacking))}"
        yield Notice(name="seeds_missing", message=message)


def _protects(defense: str) -> bool:
    """Whether any of a stack does anything; of one that is not installed here, so it is taken."""
    known = registry().entries["defenses"]
    names = [each.name for each in parse_stack(defense)]
    return any(name not in known or known[name].spec.protects for name in names)


def _cell_view(group: Group, standing: Standing, metrics: Collection[str]) -> CellView:
    """A cell over its seeds; `standing` is that of its attack's controls."""
    first = next(iter([*group.ok, *group.records]), None)
    flags = flags_of(group)
    status, reason = _ended(group)
    return CellView(
        attack=group.attack,
        threat_model=group.cell.request.threat_model,
        release_kind=first.release_kind if first else "",
        status=status,
        reason=reason,
        seeds=tuple(r.request.seed for r in group.ok),
        records=tuple(record.id for record in group.records),
        leaks=_leaks(group.counted, metrics),
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


def _ended(group: Group) -> tuple[CellStatus, str]:
    """The status of a seed with a result, else that of the first seed and why."""
    if group.ok:
        return "ok", ""
    if not group.records:
        return "missing", MISSING
    return group.records[0].status, group.records[0].error or ""


def _leaks(records: Sequence[RunRecord], metrics: Collection[str]) -> dict[str, Leak]:
    """By metric, the means over seeds of what the records say."""
    found: dict[str, list[tuple[int, MetricScore]]] = {}
    for record in records:
        for name, score in record.privacy.items():
            if name.removesuffix(ABSOLUTE) in metrics and score.mean is not None:
                found.setdefault(name, []).append((record.request.seed, score))
    return {name: _leak(name, each) for name, each in sorted(found.items())}


def _leak(name: str, by_seed: Sequence[tuple[int, MetricScore]]) -> Leak:
    scores = [score for _, score in by_seed]
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
        seeds=tuple(seed for seed, _ in by_seed),
    )


def _findings(record: RunRecord) -> Iterator[str]:
    """What a record found out besides images: `weight error 0.01, without the release 0.1`."""
    claimed: Mapping[str, Finding] = record.findings
    if found := record.identification:
        yield (
            f"identifies {found.top1:.1%} of {found.n} {found.asked} first among "
            f"{found.candidates} candidates (chance {found.top1_chance:.1%}), AUC {found.auc:.3f}"
        )
    for name, each in sorted(claimed.items()):
        if name not in BY_IMAGES:
            ci = f" ({each.ci[0]:.3g} to {each.ci[1]:.3g})" if each.ci else ""
            unit = f" {each.unit}" if each.unit else ""
            guess = "" if each.chance is None else f", without the release {each.chance:.3g}"
            yield f"{name.replace('_', ' ')} {each.value:.3g}{unit}{ci}{guess}"


def _seconds(records: Sequence[RunRecord]) -> float | None:
    """What the attack took, with all that it prepared; the mean over seeds."""
    parts = ("prepare", "attack")
    taken = [sum(r.timing.get(f"{part} {r.attack.name}", 0.0) for part in parts) for r in records]
    mean = sum(taken) / len(taken) if taken else inf
    return rounded(mean) if isfinite(mean) else None


def command(request: Request) -> str:
    """The command that evaluates such a cell anew, ready to be pasted."""
    given = request.model_dump(mode="json", exclude_defaults=True, exclude={"device"})
    values = {**{name: getattr(request, name) for name in ALWAYS}, **given}
    words = ["harness", "evaluate"]
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def _claim_view(claim: Claim, rows: Sequence[Shown]) -> ClaimView:
    """A claim beside the first cell of its defense and attack that has such a number.

    Its metric is an image metric, a finding, or `accuracy`, which no attack decides and which may
    be one of the row's curve.
    """
    found = (_measured(claim, row) for row in rows if row.line.defense == claim.defense)
    measured = next(filter(None, found), None)
    return ClaimView(**claim.model_dump(exclude={"value"}), claimed=claim.value, measured=measured)


def _accuracy(claim: Claim, row: RowView) -> Number | None:
    """The row's own, or that on its curve that the claim is of."""
    if claim.private_size is None and claim.rounds is None:
        return row.accuracy
    wanted = (claim.private_size, claim.rounds or 1)
    return next((e.accuracy for e in row.curve if (e.private_size, e.rounds) == wanted), None)


def _measured(claim: Claim, row: Shown) -> Number | None:
    if claim.metric == ACCURACY:
        return _accuracy(claim, row.view)
    for group, cell in zip(row.line.groups, row.view.cells, strict=True):
        if group.attack == claim.attack:
            leak = cell.leaks.get(claim.metric)
            found = [r.findings[claim.metric] for r in group.counted if claim.metric in r.findings]
            return leak.mean if leak else over_seeds(number(f.value, f.ci) for f in found)
    return None

"""A record as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.api.knowledge import OF_BATCHES, ReleaseKind
from harness.api.release import GUARANTEE
from harness.scoring.flags import FORETOLD, HAD
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import direction, main_metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.scoring.ceilings import Proof, Proven
    from harness.scoring.findings import Finding
    from harness.scoring.identification import Identification
    from harness.scoring.utility import Utility
    from harness.store.record import Member, Records, RunRecord

WIDTH = 132
"""Columns where nobody says how many there are, as in a pipe."""
NARROW = 112
"""Below this the table keeps to what matters most."""


def output() -> Console:
    """Standard output for text and tables. Brackets are options of plugins, and no markup."""
    width = None if Console().is_terminal else WIDTH
    return Console(width=width, highlight=False, markup=False)


def table_of(*headings: str, no_wrap: bool = False) -> Table:
    """An empty table as all commands print them; long cells are folded."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=no_wrap, overflow="fold")
    return table


def print_report(record: RunRecord, records: Records | None) -> None:
    """Print what was asked, what leaked, what was learned, and where it is kept.

    Of what failed its one line stands first, and whatever it wrote, a traceback say, at the end.
    """
    console = output()
    console.print(Text(_heading(record), style="bold"))
    if record.status != "ok":
        console.print(Text(record.ending, style="bold red"), soft_wrap=True)
    if main_metric(record.privacy):
        console.print(_privacy_table(record, console.width))
        console.print(Text(_legend(record), style="dim"))
    if record.privacy:
        for reason, names in _left_out(record.privacy).items():
            console.print(Text(f"{', '.join(names)} unavailable: {reason}", style="dim"))
    if record.members:
        console.print(_members_table(record))
    if record.identification:
        console.print(_identification_line(record.identification))
    found = (*_findings_lines(record.findings, record.diagnostics), *_guarantees(record))
    for line in (*found, *_ceiling_lines(record.ceilings)):
        console.print(Text(line), soft_wrap=True)
    if record.utility:
        line = _utility_line(record.utility, record.victim.name)
        console.print(Text(line), soft_wrap=True)
        for line in _utility_details(record):
            console.print(Text(line, style="dim"), soft_wrap=True)
    for flag in record.flags:
        console.print(Text(f"flag {flag.name}: {flag.message}", style="yellow"))
    if record.verdict:
        console.print(Text(record.verdict, style="bold"))
    _print_places(console, record, records)
    if record.written:
        console.print(Text(record.written, style="dim"), soft_wrap=True)


def _ceiling_lines(proofs: Mapping[str, Proof]) -> Iterator[str]:
    """What each ceiling says."""
    for name, proof in proofs.items():
        yield from _proof_lines(name, proof)


def _proof_lines(name: str, proof: Proof) -> Iterator[str]:
    """What no attack exceeds, what was reached of it, and how far the ceiling can be trusted."""
    if proof.reason:
        yield f"no ceiling ({name}): {proof.reason}"
        return
    numbers = (f"{quantity} {_proven(value)}" for quantity, value in proof.quantities.items())
    yield f"ceiling ({name}): {', '.join(numbers)}"
    for attack, each in sorted(proof.reached.items(), key=lambda item: -item[1].value):
        against = f", at most {_proven(proof.quantities[each.bound])}" if each.bound else ""
        beyond = "" if each.bound else ", not bounded"
        yield f"  {attack} reached a pooled SNR of {each.value:.3g} dB{against}{beyond}"
    yield from (f"  {note}" for note in proof.notes)


def _proven(quantity: Proven) -> str:
    if quantity.interval is None:
        return f"{quantity.value:.3g}"
    low, high = quantity.interval
    return f"{quantity.value:.3g} [{low:.3g}, {high:.3g}]"


def _heading(record: RunRecord) -> str:
    stack = "+".join(_term(d.name, d.config, d.resolved) for d in record.defense)
    held_out = "held-out " if record.request.targets_from == "heldout" else ""
    size = f", {record.splits['targets']} {held_out}targets" if record.splits else ""
    if record.splits and record.request.judge_at == "release":
        size += " at the release's resolution"
    rounds = f", {record.request.rounds} rounds" if record.request.rounds > 1 else ""
    attacked = "" if record.request.only == "utility" else f" × {record.attack.name}"
    return (
        f"{stack}{attacked} on {record.dataset.name} "
        f"({record.threat_model}, {record.request.preset}{size}{rounds}{_taken(record)})"
    )


def _taken(record: RunRecord) -> str:
    """Of gradients and updates: of how many images each is, and of what model."""
    kind, asked = record.release_kind, record.request
    if kind not in OF_BATCHES:
        return ""
    images = "single images" if asked.together == 1 else f"batches of {asked.together}"
    if kind == ReleaseKind.UPDATES:
        steps = "1 step" if asked.local_steps == 1 else f"{asked.local_steps} steps"
        images = f"{steps} of SGD at {asked.local_lr:g} on {images}"
    epochs = "1 epoch" if asked.victim_epochs == 1 else f"{asked.victim_epochs} epochs"
    return f", {kind} of {images} after {epochs}, BatchNorm in {asked.bn_mode} mode"


def _term(name: str, config: dict[str, object], resolved: dict[str, float | int | str]) -> str:
    turned_out = {key: value for key, value in resolved.items() if not key.startswith(GUARANTEE)}
    shown = {key: value for key, value in config.items() if value is not None} | turned_out
    inside = ", ".join(f"{key}={_short(value)}" for key, value in sorted(shown.items()))
    return f"{name}[{inside}]" if inside else name


def _guarantees(record: RunRecord) -> list[str]:
    """What defenses of the stack prove of the release, each in a line."""
    from harness.store.artifacts import below

    told = [below(GUARANTEE, used.resolved) for used in record.defense]
    return [
        f"proven: ({_short(each['epsilon'])}, {_short(each['delta'])})-differential privacy, "
        f"{each['adjacency']}; assumed: {each['assumptions']}"
        for each in told
        if {"epsilon", "delta", "adjacency", "assumptions"} <= each.keys()
    ]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _privacy_table(record: RunRecord, width: int) -> Table:
    companions = list(record.companions) if width >= NARROW else []
    headings = ["metric", record.attack.name, "best null", "gain over it"]
    headings += ["worst image", *companions] if width >= NARROW else []
    table = table_of(*headings, no_wrap=True)
    main = main_metric(record.privacy)
    # The metric that the verdict speaks of, then the others by name.
    for name, score in sorted(record.privacy.items(), key=lambda item: (item[0] != main, item[0])):
        if not score.unavailable:
            beside = [record.companions[c].get(name) for c in companions]
            means = [_number(each.mean if each else None) for each in beside]
            row = (*_row(name, score, coloured=name == main), *means)
            table.add_row(*row[: len(headings)])
    return table


def _members_table(record: RunRecord) -> Table:
    """Each attack of a suite in a line, the strongest first; then those that could not be."""
    metric = main_metric(record.privacy)
    table = table_of("attack", metric or "", "gain over its null", "strongest of", "also found")
    for name, member in sorted(record.members.items(), key=lambda item: _standing(item[1], metric)):
        table.add_row(name, *_member_row(member, metric))
    return table


def _standing(member: Member, metric: str | None) -> tuple[bool, bool, float]:
    """Those that answered first, and of them those that leak most."""
    score = member.privacy.get(metric or "")
    if member.status != "ok" or score is None or score.gain is None:
        return member.status == "not_applicable", True, 0.0
    return False, False, -score.gain


def _member_row(member: Member, metric: str | None) -> tuple[str | Text, ...]:
    if member.status != "ok":
        return ("–", Text(member.status.replace("_", " ")), "–", Text(member.error or ""))
    found = [f"{_words(name)} {_finding(each)}" for name, each in member.findings.items()]
    told = [_identification_line(member.identification)] if member.identification else []
    also = "; ".join([*told, *(text for text in found if not text.startswith(_words(HAD)))])
    score = member.privacy.get(metric or "")
    if score is None or score.mean is None:
        return ("–", "no images", "–", also)
    mean = f"{_number(score.mean)} ± {_number(score.std)}"
    return (mean, _gain(score, coloured=True), str(member.strongest_of), also)


def _legend(record: RunRecord) -> str:
    """How to read the table, for those who see it for the first time."""
    lines = (
        "arrows: where more leaks; mean ± deviation over images; null: a guess without the "
        "release; gain: positive leaks more, 95% interval"
    )
    chances = [f"{n}: chance {_number(s.chance)}" for n, s in record.privacy.items() if s.chance]
    return "; ".join([lines, *chances])


def _row(name: str, score: MetricScore, *, coloured: bool) -> tuple[str | Text, ...]:
    arrow = "↑" if score.leaks_more == "higher" else "↓"
    return (
        f"{name} {arrow}",
        f"{_number(score.mean)} ± {_number(score.std)}",
        f"{_number(score.null)} {_words(score.null_name)}",
        _gain(score, coloured),
        f"{_number(score.worst)} #{score.worst_index}",
    )


def _gain(score: MetricScore, coloured: bool) -> Text:
    """The gain over the best null; the verdict's own is red for a leak, yellow for a failure."""
    if score.gain is None:
        return Text("–")
    text = f"{score.gain:+.2g}"
    if score.gain_ci is None:
        return Text(text)
    low, high = score.gain_ci
    style = {1: "red", -1: "yellow", 0: ""}[direction(score)] if coloured else ""
    return Text(f"{text} [{low:+.2g}, {high:+.2g}]", style=style)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _words(name: str | None) -> str:
    return (name or "").replace("_", " ")


def _findings_lines(found: dict[str, Finding], diagnostics: dict[str, float]) -> list[str]:
    """What the attack found out besides images, and its own prediction of its error."""
    lines = [
        f"{_words(name)} {_finding(finding)}" for name, finding in found.items() if name != HAD
    ]
    if FORETOLD in diagnostics and HAD in found:
        own = _number(diagnostics[FORETOLD])
        lines.append(f"squared error a value: {_finding(found[HAD])}; the attack foretold {own}")
    return lines


def _finding(found: Finding) -> str:
    ci = f" ({_number(found.ci[0])} to {_number(found.ci[1])})" if found.ci else ""
    chance = "" if found.chance is None else f", without the release {_number(found.chance)}"
    return f"{_number(found.value)}{f' {found.unit}' if found.unit else ''}{ci}{chance}"


def _identification_line(found: Identification) -> str:
    recall = f"recall {found.recall:.3f} of {found.true} each; " if found.true > 1 else ""
    return (
        f"identification among {found.candidates} candidates: {recall}"
        f"top-1 {found.top1:.3f}{_interval(found.top1_ci)}, chance {found.top1_chance:.3f}; "
        f"top-5 {found.top5:.3f}, chance {found.top5_chance:.3f}; AUC {found.auc:.3f}"
    )


def _left_out(privacy: dict[str, MetricScore]) -> dict[str, list[str]]:
    """Metrics without a score, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, score in privacy.items():
        if score.unavailable:
            reasons.setdefault(score.unavailable, []).append(name)
    return reasons


def _utility_line(utility: Utility, victim: str) -> str:
    who = f"best learner {utility.inference}:" if utility.by_learner else victim
    parts = [f"{who} accuracy {utility.accuracy:.3f}{_interval(utility.interval)}"]
    if utility.reference_accuracy is not None:
        by = f" by {utility.reference_inference}" if utility.by_learner else ""
        reference = _interval(utility.reference_interval)
        parts.append(f"unprotected {utility.reference_accuracy:.3f}{reference}{by}")
    parts.append(f"chance {utility.chance:.3f}")
    if utility.at_chance and utility.by_learner:
        parts.append("the strongest learner here found nothing")
    return "; ".join(parts)


def _utility_details(record: RunRecord) -> list[str]:
    """Accuracy by learner or inference, how long training took, what was measured of the victim."""
    assert record.utility is not None
    ways = [f"{_words(way)} {found.mean:.3f}" for way, found in record.utility.own_first]
    repeats = max((len(a.trainings) for a in record.utility.accuracies.values()), default=1)
    what = "releases" if record.utility.by_learner else "trainings"
    several = f", {repeats} {what}" if repeats > 1 else ""
    ratio = record.timing.get("training ratio")
    pace = [f"training took {ratio:.2f}× the unprotected time"] if ratio else []
    by = "by learner" if record.utility.by_learner else "by inference"
    asked = [f"{by}{several}: {', '.join(ways)}"] if len(ways) > 1 or several else []
    asked += [f"left out {name}: {why}" for name, why in record.utility.left_out.items()]
    others = [f"{n} {_number(v)}" for n, v in record.measures.items() if SEPARABILITY not in n]
    measured = [", ".join(others)] if others else []
    return [*asked, *pace, *measured, *_separability(record.measures)]


SEPARABILITY = "separability."


def _separability(measures: dict[str, float]) -> list[str]:
    """Distances of hidden representations in one line."""
    parts = []
    for kind in ("within", "across"):
        low, mean, high = (
            measures.get(f"{SEPARABILITY}{kind}.{n}") for n in ("min", "mean", "max")
        )
        if mean is not None:
            parts.append(f"{kind} classes {_number(mean)} ({_number(low)} to {_number(high)})")
    return [f"distance of h(x) at the cut, ‖h‖ = 1: {', '.join(parts)}"] if parts else []


def _interval(interval: tuple[float, float] | None) -> str:
    return f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""


def _print_places(console: Console, record: RunRecord, records: Records | None) -> None:
    """Print where a record is kept, and whether its attack has broken what it must by now."""
    from harness.control import standing

    if records is None:
        return
    console.print(Text(f"record   {records.path(record.id)}", style="dim"), soft_wrap=True)
    if main_metric(record.privacy) or record.findings or record.identification:
        control = standing(record.request.attack, record.request.preset, records.root)
        console.print(Text(f"control  {control}", style="dim"))
    gallery = records.gallery(record.id)
    if gallery.exists():
        console.print(Text(f"gallery  {gallery}", style="dim"), soft_wrap=True)

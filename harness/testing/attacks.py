"""Checks of attacks, each through the true view and the true judge."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from harness.api import (
    AttackSpec,
    CellFailed,
    Channel,
    Config,
    HarnessError,
    NotApplicable,
    Progress,
    ReleaseKind,
)
from harness.api.errors import ChannelNotGranted
from harness.api.knowledge import CARRIED
from harness.asking.plan import AttackPlan
from harness.asking.registry import release_kind
from harness.control import AnyReport, ControlResult, run_controls
from harness.description import place
from harness.running.judge import JudgeStage
from harness.sandbox.jobs import PREPARED, open_view, read_frame
from harness.testing.datasets import CASES, known
from harness.testing.subject import Subject, Unanswered, Violation, find, refusal
from harness.testing.watch import (
    ENGINE,
    META,
    TORCH,
    different,
    disciplined,
    forgetful,
    on_meta,
    unmoved,
)
from harness.testing.workbench import Serve, Workbench, asked, serve, workbench

TAKEN_OVER = {
    *("victim", "release", "rounds", "threat_model", "targets_from", "judge_at"),
    *("batch_size", "bn_mode", "victim_epochs", "local_steps", "local_lr", "local_images"),
}
"""Options that the kit's cell takes over from an attack's first control."""
ROUNDS = 8
TARGETS = 8
DEFAULT = "informed"


@dataclass(frozen=True)
class Answer:
    """What an attack brought back from the kit's images, what it scored, and what it took."""

    tensors: dict[str, Tensor]
    score: str
    seconds: float


def cell_of(subject: Subject, case: str = "grey", kind: ReleaseKind | None = None) -> Any:
    """Options of the cell that an attack is checked in: its first control's, on the kit's images.

    With `kind`, the plain cell of that kind of release.
    """
    if not subject.spec.needs:
        raise Unanswered("it is made of other attacks, which are checked one by one")
    common = {
        "attack": subject.text,
        "only": "privacy",
        "seconds": subject.seconds,
        "targets": min(TARGETS, CASES[case].private),
    }
    return asked(case, **common, **_setting(subject.spec, kind))


def _setting(spec: AttackSpec, kind: ReleaseKind | None) -> dict[str, Any]:
    """The defense, and how the release is made and known."""
    needs = next(n for n in spec.needs if kind in (None, release_kind(n)))
    several = 2 if release_kind(needs) is ReleaseKind.ENCODINGS else 1
    plain = {
        "defense": "none",
        "release": release_kind(needs).value,
        "rounds": max(several, spec.fewest_rounds),
        "threat_model": _granting(needs),
    }
    if kind is not None or not spec.controls:
        return plain
    control = spec.controls[0]
    own = {name: value for name, value in control.options.items() if name in TAKEN_OVER}
    rounds = max(min(own.get("rounds", several), ROUNDS), spec.fewest_rounds)
    return {**plain, **own, "defense": control.defense, "rounds": rounds}


def _granting(needs: frozenset[Channel]) -> str:
    """The default threat model, or the first that grants these channels."""
    models = sorted(known().specs("threat_models"), key=lambda m: (m.name != DEFAULT, m.name))
    carried = needs & CARRIED[release_kind(needs)]
    fit = [model.name for model in models if carried <= model.grants]
    if not fit:
        raise Violation(
            f"no threat model grants {', '.join(sorted(needs))}",
            "list in `needs` what the attack cannot do without, and the rest in `optional`",
        )
    return str(fit[0])


@cache
def _first(text: str, seconds: float) -> Answer:
    """The answer of the first run, which several checks look at."""
    with workbench(cell_of(find(text, "attacks", seconds))) as bench:
        return _answer(bench, bench.plan)


def _answer(bench: Workbench, chosen: AttackPlan) -> Answer:
    try:
        tensors = bench.answer(chosen)
    except ChannelNotGranted as error:
        raise Violation(
            str(error), "list it in `needs` or `optional`, and ask `view.has` of an optional one"
        ) from error
    score = bench.run(JudgeStage(bench.run.cell, chosen)).privacy.get("snr_db")
    told = "claims"
    if score is not None and score.mean is not None:
        told = f"snr_db {score.mean:.1f}, best null {score.null:.1f}"
    return Answer(tensors, told, sum(bench.process.times))


def answers(subject: Subject) -> str:
    """What comes back can be judged, by the judge himself."""
    answer = _first(subject.text, subject.seconds)
    return f"{', '.join(sorted(answer.tensors))}: {answer.score}"


def keeps_its_budget(subject: Subject) -> str:
    """It ends within the seconds that it is told."""
    taken = _first(subject.text, subject.seconds).seconds
    if taken > subject.seconds:
        raise Violation(f"it took {taken:.0f} s, and was told {subject.seconds:g}")
    return f"{taken:.1f} s of {subject.seconds:g}"


def needs_no_more(subject: Subject) -> str:
    """Each alternative of its needs is enough, without anything optional.

    It is asked in the cell of the first control where that is of its kind, else in the plain one.
    """
    own, scores = cell_of(subject), []
    for needs in subject.spec.needs:
        kind = release_kind(needs)
        first = kind is release_kind(subject.spec.needs[0])
        with workbench(own if first else cell_of(subject, kind=kind)) as bench:
            scores.append(f"{kind} alone: {_alone(subject, bench, needs)}")
    return "; ".join(scores)


def _alone(subject: Subject, bench: Workbench, needs: frozenset[Channel]) -> str:
    """What it scores when it is given what it needs, and what its config demands."""
    config = subject.plugin.config
    demanded = config.demands() if isinstance(config, Config) else frozenset()
    chosen = replace(bench.plan, channels=needs | demanded)
    try:
        return _answer(bench, chosen).score
    except NotApplicable as error:  # this release is none for it, which is no want of channels
        return f"refuses: {error}"
    except (CellFailed, Violation) as error:
        raise Violation(f"with {', '.join(sorted(chosen.channels))} alone: {error}") from error


def deterministic(subject: Subject) -> str:
    """The same view gives the same bytes."""
    first = _first(subject.text, subject.seconds)
    with workbench(cell_of(subject)) as bench:
        again = bench.answer(bench.plan)
    wrong = different(first.tensors, again)
    if wrong:
        raise Violation(f"two runs on one view differ in {', '.join(wrong)}")
    return "two runs on one view give the same bytes"


def leaves_the_world_alone(subject: Subject) -> str:
    """Global state stays as it was, but for torch's generator, which is seeded for the attack."""
    with workbench(cell_of(subject)) as bench:
        return unmoved(lambda: bench.answer(bench.plan), TORCH)


def copes_with(subject: Subject, case: str) -> str:
    """Data out of the ordinary is answered, or refused in a sentence of the attack's own."""
    with workbench(cell_of(subject, case)) as bench:
        try:
            return _answer(bench, bench.plan).score
        except HarnessError as error:
            return refusal(error)


def forgets(subject: Subject) -> str:
    """Attacks leave nothing behind in their process."""
    cell = cell_of(subject)
    return forgetful(lambda _: _run(cell, serve), ENGINE)


def _run(cell: Mapping[str, Any], by: Serve) -> None:
    with workbench(cell, serve=by) as bench:
        bench.answer(bench.plan)


class Followed(Exception):
    """An attack has come to its end on a device without values: there is nothing to judge."""


def works_on_any_device(subject: Subject) -> str:
    """It works on the device of its view. Learning is done as ever."""
    cell = cell_of(subject)

    def elsewhere(job: Mapping[str, Any], progress: Progress) -> None:
        if job["action"] != "reconstruct":
            return serve(job, progress)
        folder = Path(job["view"])
        frame = read_frame(folder)
        prepared = on_meta(load_file(Path(job["out"]) / PREPARED))
        view = open_view(folder, frame)
        away = replace(
            view, channels=on_meta(view.channels), shared=on_meta(view.shared), device=META
        )
        subject.build().reconstruct(away, prepared, frame.budget, progress)
        raise Followed

    def follow() -> None:
        with suppress(Followed):
            _run(cell, elsewhere)

    return disciplined(subject, follow)


def passes_its_controls(subject: Subject) -> str:
    """Every control, in its own cell on its own data; what is stored is not run again."""
    if not subject.spec.controls:
        raise Unanswered("none is declared")
    return in_words(run_controls(subject.text, threads=1))


def in_words(report: AnyReport) -> str:
    """What controls reached; Violation where that is too little, Unanswered for want of data."""
    short = [result for result in report.results if not result.passed]
    lacking = [result for result in short if result.status == "unavailable"]
    if short and short == lacking:
        raise Unanswered(f"{place(short[0].control)}: {short[0].error}")
    if short:
        raise Violation("; ".join(map(_in_words, short)))
    return "; ".join(map(_in_words, report.results))


def _in_words(result: ControlResult) -> str:
    asked = result.control
    where = f"{place(asked)}: {asked.metric}"
    if result.reached is None:
        return f"{where}: {result.error}"
    return f"{where} {result.reached:.4g}, wanted {asked.at_least:g}"

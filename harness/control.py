"""Positive controls: what attacks must break and learners learn before their failures count."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel

from harness.api.errors import AssetUnavailable, IntegrityError, UsageError, nearest
from harness.api.specs import Control
from harness.asking import PresetName
from harness.asking.plan import plan, resolved
from harness.asking.registry import registry
from harness.asking.request import Resolved, make_request
from harness.running.run import Observer, Run, equip
from harness.scoring.findings import Finding, leaks_more
from harness.scoring.identification import Identification
from harness.scoring.summary import Interval
from harness.scoring.verdict import ABSOLUTE
from harness.store.paths import cache_root, disk_errors, write_atomically
from harness.store.provenance import (
    canonical_json,
    code_state,
    package_versions,
    plugin_identity,
    sha256_of,
)
from harness.store.reading import read_json, read_plain
from harness.store.record import MALFORMED, RunRecord, Status, Used

SCHEMA = "encoding-harness/control/1"
LEARNERS = "encoding-harness/learner-control/1"
VOLATILE = {"id", "created", "code", "packages"}
"""What may differ between two reports that say the same; everything else is under the id."""
IDENTIFICATION = tuple(
    name.removesuffix("_ci") for name in Identification.model_fields if name.endswith("_ci")
)
"""What a control may ask of an identification, as `identification.top1`."""

LEARNED = ("accuracy", "share")
"""What a learner's control may ask."""

Direction = Literal["higher", "lower"]
Kind = Literal["attacks", "learners"]
Outcome = Literal[Status, "unavailable"]
"""How a control's cell ended; `unavailable`: this machine lacks its data or a plugin."""


class ControlResult(BaseModel, frozen=True, extra="forbid"):
    """One control and what became of it.

    `reached` is what the asked metric came to, None where the cell has no such number; `error`
    then says why. `record` is the id of the cell's record. A control that could not run has not
    passed.
    """

    control: Control
    reached: float | None = None
    ci: Interval | None = None
    leaks_more: Direction | None = None
    unit: str = ""
    passed: bool = False
    record: str = ""
    status: Outcome
    error: str | None = None


class _Report(BaseModel, frozen=True, extra="forbid"):
    """All controls of one plugin, as it is installed and was configured under `preset`.

    `written` is what was typed, `plugin` what that resolved to, of its `kind`.
    """

    kind: ClassVar[Kind]

    schema_: str
    id: str = ""
    written: str
    preset: PresetName
    seed: int
    results: tuple[ControlResult, ...]
    passed: bool
    created: str = ""
    code: dict[str, str | bool] = {}
    packages: dict[str, str] = {}

    def canonical(self) -> dict[str, Any]:
        """As JSON values, `schema` under its own name."""
        values = self.model_dump(mode="json")
        return {"schema": values.pop("schema_"), **values}

    def json_bytes(self) -> bytes:
        """As it lies in a file."""
        return canonical_json(self.canonical()).encode() + b"\n"

    def fingerprint(self) -> str:
        """The id: a hash of everything that is not volatile."""
        return sha256_of({k: v for k, v in self.canonical().items() if k not in VOLATILE})

    def sealed(self) -> Self:
        """The same report with its id."""
        return self.model_copy(update={"id": self.fingerprint()})

    @property
    def plugin(self) -> Used:
        """Whose controls these are."""
        raise NotImplementedError

    @property
    def file_name(self) -> str:
        """What it is called among a board's reports: one for each plugin and its options."""
        prefix = "" if self.kind == "attacks" else f"{self.kind}-"
        return f"{prefix}{self.plugin.name}-{sha256_of(self.plugin.config)[:12]}.json"

    @property
    def conclusive(self) -> bool:
        """Whether every control could run here; otherwise it says nothing of the plugin."""
        return all(result.status != "unavailable" for result in self.results)


class ControlReport(_Report):
    """All controls of one attack."""

    kind = "attacks"
    schema_: str = SCHEMA
    attack: Used

    @property
    def plugin(self) -> Used:
        """The attack."""
        return self.attack


class LearnerReport(_Report):
    """All controls of one learner."""

    kind = "learners"
    schema_: str = LEARNERS
    learner: Used

    @property
    def plugin(self) -> Used:
        """The learner."""
        return self.learner


AnyReport = ControlReport | LearnerReport
"""A report on controls, as it lies in a file."""
REPORTS: dict[str, type[AnyReport]] = {SCHEMA: ControlReport, LEARNERS: LearnerReport}
"""By what a file says that it is."""


def direction(metric: str) -> Direction:
    """In which direction what a control asks for leaks more."""
    declared, name = registry().entries["metrics"], metric.removesuffix(ABSOLUTE)
    found: Direction = declared[name].spec.leaks_more if name in declared else leaks_more(metric)
    return found


def run_controls(
    text: str, observer: Observer | None = None, *, root: Path | None = None, **options: Any
) -> ControlReport:
    """Run every control of the attack that `text` selects, and keep the report.

    `options` are those of an evaluation that are common to all cells: `preset`, `seed`,
    `device`, `threads`; a control's own win over them. Cells that are stored are not run again.
    UsageError for what cannot be asked, and for an attack that declares no control.
    """
    root = root or cache_root()
    attack, said = _ran("attacks", text, options, root, observer or Observer())
    report = ControlReport(attack=Used.of(registry(), "attacks", attack), **said).sealed()
    if report.conclusive:
        write_atomically(report_path(attack, root), report.json_bytes())
    return report


def run_learner_controls(
    text: str, observer: Observer | None = None, *, root: Path | None = None, **options: Any
) -> LearnerReport:
    """Likewise of the learner that `text` selects."""
    root = root or cache_root()
    learner, said = _ran("learners", text, options, root, observer or Observer())
    report = LearnerReport(learner=Used.of(registry(), "learners", learner), **said).sealed()
    if report.conclusive:
        write_atomically(report_path(learner, root), report.json_bytes())
    return report


def _ran(
    kind: Kind, text: str, options: Mapping[str, Any], root: Path, observer: Observer
) -> tuple[Resolved, dict[str, Any]]:
    """The plugin, and what its report says besides."""
    request = make_request(**{kind.removesuffix("s"): text}, **options)
    plugin = controlled(text, request.preset, kind)
    results = _results(kind, plugin, text, options, root, observer)
    return plugin, {
        "written": text,
        "preset": request.preset,
        "seed": request.seed,
        "results": results,
        "passed": all(result.passed for result in results),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": code_state(),
        "packages": package_versions(),
    }


def controlled(text: str, preset: str = "quick", kind: Kind = "attacks") -> Resolved:
    """The plugin that `text` selects; UsageError if there is none, or none with a control."""
    plugin = resolved(kind, text, preset, registry())
    if not plugin.spec.controls:
        does = "break" if kind == "attacks" else "learn"
        raise UsageError(f"'{plugin.name}' declares no control: nothing says what it must {does}.")
    return plugin


def _results(
    kind: Kind,
    plugin: Resolved,
    text: str,
    options: Mapping[str, Any],
    root: Path,
    observer: Observer,
) -> tuple[ControlResult, ...]:
    """What became of each control; `unavailable` where its cell cannot be asked for here."""
    controls = plugin.spec.controls
    results: list[ControlResult] = []
    with observer.stage(f"controls of {plugin.name}") as progress:
        for control in controls:
            progress(len(results), len(controls), control.defense)
            asked = options_of(control, text) if kind == "attacks" else _lesson_of(control, text)
            cell = {**options, **asked}
            try:
                equip(plan(make_request(**cell), registry()), root)
            except (UsageError, AssetUnavailable) as error:
                lacks = ControlResult(control=control, status="unavailable", error=str(error))
                results.append(lacks)
            else:
                record = Run.open(cell, cache=root, observer=observer).result()
                results.append(judged(control, record))
    return tuple(results)


def options_of(control: Control, attack: str) -> dict[str, Any]:
    """What is asked of `evaluate` for one control; if it looks at a metric, no other is scored."""
    metric = control.metric.removesuffix(ABSOLUTE)
    return {
        **({"metrics": metric} if metric in registry().entries["metrics"] else {}),
        **control.options,
        "defense": control.defense,
        "dataset": control.dataset,
        "attack": attack,
        "only": "privacy",
    }


def _lesson_of(control: Control, learner: str) -> dict[str, Any]:
    """The same for a learner's."""
    return {
        **control.options,
        "defense": control.defense,
        "dataset": control.dataset,
        "learner": learner,
        "only": "utility",
    }


def judged(control: Control, record: RunRecord) -> ControlResult:
    """Whether a cell's record reaches what its control asks, in the direction that leaks more."""
    found = _measured(control.metric, record) if record.status == "ok" else record.error
    common: dict[str, Any] = {"control": control, "record": record.id, "status": record.status}
    if not isinstance(found, Finding):
        return ControlResult(**common, error=found)
    return ControlResult(
        **common,
        **found.model_dump(include={"ci", "leaks_more", "unit"}),
        reached=found.value,
        passed=reaches(found.value, control.at_least, found.leaks_more),
    )


def reaches(value: float, wanted: float, leaks_more: Direction) -> bool:
    """Whether a value leaks as much as wanted, or more."""
    return value >= wanted if leaks_more == "higher" else value <= wanted


def _measured(name: str, record: RunRecord) -> Finding | str:
    """The number that a control names, or why the record does not have it."""
    part, _, field = name.partition(".")
    if part == "identification":
        return _identified(field, record.identification)
    if name in LEARNED:
        return _learned(name, record)
    if name in record.privacy:
        score = record.privacy[name]
        if score.mean is None:
            return score.unavailable or f"'{name}' was not scored"
        side = score.leaks_more
        return Finding(value=score.mean, ci=score.ci, leaks_more=side, unit=score.unit)
    if name in record.findings:
        return record.findings[name]
    known = {*record.privacy, *record.findings, *(f"identification.{f}" for f in IDENTIFICATION)}
    return f"the cell has no metric and no finding '{name}'.{nearest(name, known)}"


def _learned(name: str, record: RunRecord) -> Finding | str:
    """Accuracy, or its share of the best that there is for images of a known law."""
    if record.utility is None:
        return "the cell has no accuracy"
    accuracy, interval = record.utility.accuracy, record.utility.interval
    if name == "accuracy":
        return Finding(value=accuracy, ci=interval)
    used = record.dataset
    best = registry().build("datasets", used.name, _config_of(used)).best_accuracy()
    if best is None:
        return f"nobody knows the best accuracy there is on '{used.name}'"
    ci = (interval[0] / best, interval[1] / best) if interval else None
    return Finding(value=accuracy / best, ci=ci)


def _config_of(used: Used) -> BaseModel:
    """The config that a record tells of."""
    config: BaseModel = registry().spec("datasets", used.name).config.model_validate(used.config)
    return config


def _identified(field: str, found: Identification | None) -> Finding | str:
    if field not in IDENTIFICATION:
        return f"an identification has no '{field}'.{nearest(field, IDENTIFICATION)}"
    value = getattr(found, field, None)
    if value is None:
        return "the attack identified nothing: it returned no candidate scores"
    return Finding(value=value, ci=getattr(found, f"{field}_ci"))


def report_path(plugin: Resolved, root: Path) -> Path:
    """Where the report on a plugin lies: another source or config is another plugin."""
    return root / "controls" / f"{plugin.name}-{sha256_of(plugin_identity(plugin))}.json"


def control_of(attack: Resolved, root: Path) -> ControlReport | None:
    """The last report on this very attack: source, version, config and controls as they are now.

    None where its controls were never run so. IntegrityError if the file is no report on it.
    """
    path = report_path(attack, root)
    with disk_errors(path):
        if not path.exists():
            return None
    report = load_report(path)
    used = Used.of(registry(), "attacks", attack)
    if not isinstance(report, ControlReport) or report.attack != used:
        raise _broken(path, attack.name)
    controls = tuple(result.control for result in report.results)
    return report if controls == attack.spec.controls else None


def load_report(path: Path) -> AnyReport:
    """Read a report and check it against its id; IntegrityError if the file is none."""
    data = read_plain(path)
    with suppress(*MALFORMED):
        values = read_json(data)
        values["schema_"] = values.pop("schema")
        report = REPORTS[values["schema_"]].model_validate(values)
        if report.id == report.fingerprint():
            return report
    raise _broken(path, path.stem.rpartition("-")[0])


def _broken(path: Path, plugin: str) -> IntegrityError:
    kind, _, learner = plugin.partition("-")
    told = f"--kind learners {learner}" if kind == "learners" and learner else plugin
    return IntegrityError(
        f"{path} is no report on '{learner if told != plugin else plugin}', or has been changed. "
        f"`harness control {told}` makes it anew."
    )


def standing(text: str, preset: str, root: Path) -> str:
    """In a few words, whether the attack that `text` selects has passed its controls."""
    try:
        attack = controlled(text, preset)
    except UsageError:  # another version's options, a plugin that is gone, or no control
        return "none is declared"
    report = control_of(attack, root)
    if report is None:
        return f"not run yet: harness control '{text}'"
    return "passed" if report.passed else "FAILED: that the attack fails says nothing"

"""The record of one evaluated cell: canonical JSON with all of its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.asking.request import Request
from harness.scoring.by_image import ByImage
from harness.scoring.findings import Finding
from harness.scoring.flags import Flag
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore
from harness.scoring.utility import PLAIN, RECOMPUTED, Utility
from harness.store.canonical import canonical_json, sha256_of
from harness.store.identity import plain_config, plugin_source

if TYPE_CHECKING:
    from pandas import DataFrame

    from harness.asking.registry import Registry
    from harness.asking.selector import Resolved

SCHEMA = "encoding-harness/record/4"
VOLATILE = {"id", "timing", "peak_memory", "environment", "code", "created", "log"}
"""What may differ between two runs of one cell; everything else is under the id."""

Status = Literal["ok", "failed", "timeout", "not_applicable"]


class Used(BaseModel):
    """One plugin as it ran."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    distribution: str
    source_sha256: str
    config: dict[str, Any]
    resolved: dict[str, float | int | str] = {}

    @classmethod
    def of(
        cls,
        known: Registry,
        kind: str,
        resolved: Resolved,
        parameters: Mapping[str, float | int | str] | None = None,
    ) -> Used:
        """What a record says of a plugin; `parameters` are options as they turned out."""
        return cls(
            name=resolved.name,
            version=resolved.spec.version,
            distribution=known.origin(kind, resolved.name).distribution,
            source_sha256=plugin_source(resolved),
            config=plain_config(resolved),
            resolved=dict(parameters or {}),
        )


class Stored(BaseModel):
    """One artifact by content."""

    model_config = ConfigDict(frozen=True)

    key: str
    sha256: str
    bytes: int


class Member(BaseModel):
    """One attack of a cell whose attack is many.

    `strongest_of` images it came nearest to of all members, by the main metric.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    error: str | None = None
    attack: Used
    channels_used: tuple[str, ...] = ()
    privacy: dict[str, MetricScore] = {}
    identification: Identification | None = None
    findings: dict[str, Finding] = {}
    diagnostics: dict[str, float] = {}
    flags: tuple[Flag, ...] = ()
    strongest_of: int = 0


class RunRecord(BaseModel):
    """One cell: what was asked, what that resolved to, what came out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: str = SCHEMA
    id: str = ""
    status: Status
    error: str | None = None
    request: Request
    defense: tuple[Used, ...]
    attack: Used
    dataset: Used
    public: Used | None = None
    victim: Used
    space: Used
    threat_model: str
    release_kind: str
    channels_used: tuple[str, ...] = ()
    splits: dict[str, int] = {}
    seeds: dict[str, str | int] = {}
    device: str
    threads: int
    utility: Utility | None = None
    measures: dict[str, float] = {}
    """Of the victim: separability at its cut, and what training defenses measured."""
    privacy: dict[str, MetricScore] = {}
    by_image: dict[str, ByImage] = {}
    """The attack's scores image by image; none where the attack is many."""
    companions: dict[str, dict[str, MetricScore]] = {}
    members: dict[str, Member] = {}
    """Where the attack is many: each of them; `privacy` is then the worst case over them."""
    identification: Identification | None = None
    findings: dict[str, Finding] = {}
    """What else the attack found out, by name."""
    diagnostics: dict[str, float] = {}
    flags: tuple[Flag, ...] = ()
    verdict: str = ""
    artifacts: dict[str, Stored] = {}
    timing: dict[str, float] = {}
    peak_memory: dict[str, float] = {}
    environment: dict[str, Any] = {}
    code: dict[str, str | bool] = {}
    created: str = ""
    log: str = ""

    def canonical(self) -> dict[str, Any]:
        """As JSON values, `schema` under its own name."""
        values = self.model_dump(mode="json")
        return {"schema": values.pop("schema_"), **values}

    def fingerprint(self) -> str:
        """The id: a hash of everything that is not volatile."""
        return fingerprint(self.canonical())

    def sealed(self) -> RunRecord:
        """The same record with its id."""
        return self.model_copy(update={"id": self.fingerprint()})

    def to_frame(self) -> DataFrame:
        """Its scores as a table: a row for each metric, and for each of every member's."""
        from harness.store.frame import COLUMNS, frame, rows_of

        return frame(rows_of(self), COLUMNS)

    def json_text(self) -> str:
        """Canonical JSON, one line."""
        return canonical_json(self.canonical())


def fingerprint(values: dict[str, Any]) -> str:
    """The id that a record's JSON values should have, whichever version wrote them."""
    asked = {k: v for k, v in values["request"].items() if k not in ("device", "threads")}
    stable = {k: v for k, v in values.items() if k not in VOLATILE}
    hashes = {name: stored["sha256"] for name, stored in values["artifacts"].items()}
    return sha256_of({**stable, "request": asked, "artifacts": hashes})


def parse_record(values: dict[str, Any]) -> RunRecord:
    """A record from JSON values, of this version or of one before."""
    values = dict(values)
    if values.get("utility"):
        values["utility"] = _upgraded(values["utility"])
    values["schema_"] = values.pop("schema", None)
    return RunRecord.model_validate(values)


def _upgraded(utility: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew one training, asked plainly and perhaps with BatchNorm recomputed."""
    if "accuracies" in utility:
        return utility
    kept = dict(utility)
    ways = {PLAIN: kept["accuracy"], RECOMPUTED: kept.pop("accuracy_bn_recomputed", None)}
    accuracies = {
        way: {"mean": mean, "interval": None, "trainings": [mean]}
        for way, mean in ways.items()
        if mean is not None
    }
    accuracies[PLAIN]["interval"] = kept["interval"]
    return {**kept, "accuracies": accuracies}

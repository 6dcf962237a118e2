"""The record of one evaluated cell: canonical JSON with all of its provenance.

On disk they are `records/<id>.json`, and `cells/<key>` says which record answers which cell. In
the cache both are sealed: a pointer in itself, a record by a file in `seals/` that the seal names,
so that two processes that write the same record at the same time both leave it sealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from harness.api.errors import IntegrityError, UsageError
from harness.api.precision import Precision
from harness.asking.request import Request
from harness.scoring.ceilings import Proof
from harness.scoring.findings import Finding
from harness.scoring.flags import Flag
from harness.scoring.identification import Identification
from harness.scoring.summary import ByImage, MetricScore
from harness.scoring.utility import PLAIN, RECOMPUTED, Utility
from harness.store.paths import (
    REMEDY,
    UNSEALED,
    cache_key,
    disk_errors,
    listed,
    seal,
    sealed,
    write_atomically,
)
from harness.store.provenance import canonical_json, plain_config, plugin_source, sha256_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from harness.asking.registry import Registry
    from harness.asking.request import Resolved

SCHEMA = "encoding-harness/record/7"
SCHEMAS = tuple(f"encoding-harness/record/{version}" for version in range(1, 8))
"""Of all versions that were ever written, by their number less one; each of them can be read."""
VOLATILE = {"id", "rest", "timing", "peak_memory", "environment", "code", "created", "log"}
"""What may differ between two runs of one cell; everything else is under the id."""
APART = ("device", "threads")
"""Of a request, what is not under the id either."""
CELLS, FAILURES = "cells", "failures"
"""Folders of pointers: each file, named by a cell's key, holds a record's id and a seal."""
SEALS = "seals"
DIGEST = r"[0-9a-f]{64}"
"""What a SHA-256 looks like: nothing else becomes part of a path."""
MALFORMED = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What reading JSON of another shape than expected raises."""

Status = Literal["ok", "failed", "timeout", "not_applicable"]


class Used(BaseModel):
    """One plugin as it ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    sha256: str = Field(pattern=f"^{DIGEST}$")
    bytes: int = Field(ge=0)


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


class Parties(BaseModel):
    """Several owners, in the order of their rows' and images' numbers.

    `sizes` are their private images, `classes` how many of each class these are, `resolved` the
    parameters of the encoding defense as they turned out on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sizes: tuple[int, ...]
    classes: tuple[tuple[int, ...], ...]
    resolved: tuple[dict[str, float | int | str], ...] = ()


class RunRecord(BaseModel):
    """One cell: what was asked, what that resolved to, what came out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: str = SCHEMA
    id: str = ""
    rest: str = ""
    """A hash of all that the id is not of, as `rest_of` says; records of before have none."""
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
    parties: Parties | None = None
    """Where the private images are several owners'."""
    seeds: dict[str, str | int] = {}
    device: str
    threads: int
    precision: Precision = "float32"
    """What networks were trained in, or some of them: those that may be."""
    utility: Utility | None = None
    learners: dict[str, Used] = {}
    """Who learned from the release, as written."""
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
    ceilings: dict[str, Proof] = {}
    """What no attack exceeds, or why that is not known, by ceiling as written; and what attacks
    that name their targets reached of it."""
    ceiling_plugins: dict[str, Used] = {}
    flags: tuple[Flag, ...] = ()
    verdict: str = ""
    artifacts: dict[str, Stored] = {}
    timing: dict[str, float] = {}
    peak_memory: dict[str, float] = {}
    environment: dict[str, Any] = {}
    code: dict[str, str | bool] = {}
    created: str = ""
    log: str = ""

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Records of one owner say nothing of parties, nor older ones of the rest."""
        values: dict[str, Any] = handler(self)
        for name, said in (("parties", self.parties is not None), ("rest", self.rest)):
            if not said:
                values.pop(name, None)
        return values

    @property
    def version(self) -> int:
        """Of its schema; ValueError where there is no such schema."""
        return SCHEMAS.index(self.schema_) + 1

    def canonical(self) -> dict[str, Any]:
        """As JSON values, `schema` under its own name."""
        values = self.model_dump(mode="json")
        return {"schema": values.pop("schema_"), **values}

    def fingerprint(self) -> str:
        """The id: a hash of everything that is not volatile."""
        return fingerprint(self.canonical())

    def sealed(self) -> RunRecord:
        """The same record with its id; what plugins wrote is made legible."""
        text, whole = self.json_text(), self
        if not text.isprintable() or "\\" in text:
            from harness.store.reading import legible

            whole = parse_record(legible(self.canonical()))
        values = whole.canonical()
        return whole.model_copy(update={"id": fingerprint(values), "rest": rest_of(values)})

    @property
    def ending(self) -> str:
        """Why there is no result, in one line; of a time limit, how much of it was work."""
        worked, _ = self._worked_and_written
        return f"{self.status}: {self.error}{f'; {worked}' if worked else ''}"

    @property
    def written(self) -> str:
        """What an attack that failed wrote, without what the line on its end has of it."""
        return self._worked_and_written[1]

    @property
    def _worked_and_written(self) -> tuple[str, str]:
        """Of a time limit the line that says how much of it was work, and the rest of the log."""
        first, _, rest = self.log.partition("\n")
        return (first, rest) if self.status == "timeout" else ("", self.log)

    def to_frame(self) -> DataFrame:
        """Its scores as a table: a row for each metric, and for each of every member's."""
        from harness.store.frame import COLUMNS, frame, rows_of

        return frame(rows_of(self), COLUMNS)

    def json_text(self) -> str:
        """Canonical JSON, one line."""
        return canonical_json(self.canonical())


def fingerprint(values: dict[str, Any]) -> str:
    """The id that a record's JSON values should have, whichever version wrote them."""
    asked = {k: v for k, v in values["request"].items() if k not in APART}
    stable = {k: v for k, v in values.items() if k not in VOLATILE}
    hashes = {name: stored["sha256"] for name, stored in values["artifacts"].items()}
    return sha256_of({**stable, "request": asked, "artifacts": hashes})


def rest_of(values: dict[str, Any]) -> str:
    """A hash of what of a record's JSON values the id leaves out: no bit of it changes unseen."""
    rest = {k: v for k, v in values.items() if k in VOLATILE - {"id", "rest"}}
    asked = {k: v for k, v in values["request"].items() if k in APART}
    return sha256_of({**rest, "request": asked, "artifacts": values["artifacts"]})


def parse_record(values: dict[str, Any]) -> RunRecord:
    """A record from JSON values, of this version or of one before.

    Before there was a choice, all networks were trained in float32.
    """
    values = dict(values)
    values["request"] = {"precision": "float32", **values["request"]}
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


class Records:
    """The records below one root: a cache's, which are sealed, or those of another folder."""

    def __init__(self, root: Path, *, cache: bool = True) -> None:
        self.root = root
        self._cache = cache

    def path(self, identity: str) -> Path:
        """Where a record lies."""
        return self.root / "records" / f"{identity}.json"

    def gallery(self, identity: str) -> Path:
        """Where a record's picture lies."""
        return self.root / "galleries" / f"{identity}.png"

    def save(self, record: RunRecord, cell: str | None = None) -> None:
        """Keep a record; a successful one also answers its cell from now on."""
        data = record.json_text().encode() + b"\n"
        if self._cache:
            write_atomically(self._seal(record.id, data), b"")
        write_atomically(self.path(record.id), data)
        if cell:
            self._point(self.root / CELLS / cell, record.id)

    def save_failure(self, record: RunRecord, cell: str) -> None:
        """Keep a record without a result: the cell has no answer, and this says why."""
        self.save(record)
        self._point(self.root / FAILURES / cell, record.id)

    def _seal(self, identity: str, data: bytes) -> Path:
        """The file whose being there says that this cache wrote a record's very bytes."""
        told = seal(self.root, "record", identity, hashlib.sha256(data).hexdigest())
        return self.root / SEALS / f"{identity}-{told}"

    def _point(self, pointer: Path, identity: str) -> None:
        told = seal(self.root, *pointer.parts[-2:], identity)
        write_atomically(pointer, f"{identity} {told}".encode())

    def answer(self, cell: str) -> RunRecord | None:
        """The record of a cell that has been evaluated before."""
        return self._named_in(self.root / CELLS / cell)

    def failure(self, cell: str) -> RunRecord | None:
        """The record of how a cell ended without a result, the last time that it did."""
        return self._named_in(self.root / FAILURES / cell)

    def _named_in(self, pointer: Path) -> RunRecord | None:
        with disk_errors(self.root):
            if not pointer.exists():
                return None
            path = self.path(self.named_in(pointer))
            return self.load(path) if path.exists() else None

    def named_in(self, pointer: Path) -> str:
        """The id that a pointer holds; IntegrityError unless it bears the cache's seal."""
        identity, told = _read_pointer(pointer)
        if not sealed(self.root, told, *pointer.parts[-2:], identity):
            raise self._broken(pointer, f"answers for no cell: {UNSEALED}")
        return identity

    def adopt(self, path: Path) -> None:
        """Seal a record, or a pointer to one; IntegrityError where there is no such record."""
        if self._own(path):
            with disk_errors(path):
                data = path.read_bytes()
            write_atomically(self._seal(self._parsed(path, data).id, data), b"")
        else:
            identity, _ = _read_pointer(path)
            if self.path(identity) not in listed(self.root / "records", ".json"):
                raise self._broken(path, "names no record")
            self.load(self.path(identity))
            self._point(path, identity)

    def forget(self, cell: str) -> None:
        """Let no record answer a cell: it is evaluated again when asked for."""
        with disk_errors(self.root):
            for pointers in (CELLS, FAILURES):
                (self.root / pointers / cell).unlink(missing_ok=True)

    def recent(self, most: int) -> tuple[list[RunRecord], list[str]]:
        """The records kept last, and what is wrong with those among them that are none."""
        with disk_errors(self.root):
            paths = listed(self.root / "records", ".json")
            paths.sort(key=lambda path: path.stat().st_mtime)
        found, faults = [], []
        for path in paths[-most:]:
            try:
                found.append(self.load(path))
            except IntegrityError as error:
                faults.append(str(error))
        return found, faults

    def load(self, path: Path) -> RunRecord:
        """Read a record and check it against its id, and the cache's own against their seals."""
        from harness.store.reading import read_plain

        data = read_plain(path)
        record = self._parsed(path, data)
        if self._cache and self._own(path) and not self._bears_seal(record.id, data):
            raise self._broken(path, f"is not as it was written: {UNSEALED}")
        return record

    def _parsed(self, path: Path, data: bytes) -> RunRecord:
        from harness.store.reading import read_json

        try:
            values = read_json(data)
            record, identity = parse_record(values), fingerprint(values)
            rest = rest_of(values)
        except (*MALFORMED, ValidationError) as error:
            raise self._broken(path, f"is not a record: {_first_fault(error)}") from None
        misnamed = self._own(path) and path != self.path(record.id)
        if identity != record.id or misnamed:
            raise self._broken(path, "has been changed: its contents do not match its id")
        if record.rest not in ("", rest):
            raise self._broken(path, "has been changed: what its id does not cover is another")
        return record

    def _bears_seal(self, identity: str, data: bytes) -> bool:
        with disk_errors(self.root):
            return bool(cache_key(self.root)) and self._seal(identity, data).exists()

    def _own(self, path: Path) -> bool:
        return path.parent == self.root / "records"

    def _broken(self, path: Path, reason: str) -> IntegrityError:
        own = self._cache and path.is_relative_to(self.root)
        return IntegrityError(f"{path} {reason}.{f' {REMEDY}' if own else ''}")

    def find(self, text: str) -> RunRecord:
        """A record by path, id, or the beginning of an id."""
        with disk_errors(Path(text)):
            if (path := Path(text)).is_file():
                return self.load(path)
        beginning = text.replace("/", "_")
        found = listed(self.root / "records", ".json")
        matches = [path for path in found if path.name.startswith(beginning)]
        if len(matches) == 1:
            return self.load(matches[0])
        if matches:
            raise UsageError(f"'{text}' is the beginning of {len(matches)} records; write more.")
        raise UsageError(f"There is no record '{text}': give a file, or an id as evaluate prints.")


def _read_pointer(pointer: Path) -> tuple[str, str]:
    """What a pointer holds: an id, and its seal."""
    with disk_errors(pointer):
        text = pointer.read_text(encoding="utf-8", errors="replace")
    identity, _, told = text.partition(" ")
    return identity, told


def _first_fault(error: Exception) -> str:
    """The first wrong field and what is wrong with it; else the first line of the message."""
    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    first, *more = error.errors(include_url=False, include_context=False, include_input=False)
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" + (f" (and {len(more)} more)" if more else "")
